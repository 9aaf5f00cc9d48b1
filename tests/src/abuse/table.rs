//! Every method of [`Tensor`] by name. A letter stands for an argument: see `arg!`.

use genesis::ops::{Attention, BatchStats, Reduction, Triplet, Varlen};
use genesis::{Device, Index, Tensor};

use super::calls::{Row, done};

/// An argument: `v` a value of the type wanted, `r` one by reference, `t` a tensor, `ts` some, `ot` perhaps one,
/// `us`, `is`, `fs`, `ix` slices, `s` a formula, `c` where to create, `rg` a range,
/// `sz` one size, `own` sizes to keep, `relu` a layer.
macro_rules! arg {
    ($g:ident v) => {
        $g.v()
    };
    ($g:ident r) => {
        &$g.v()
    };
    ($g:ident t) => {
        &$g.tensor()
    };
    ($g:ident ts) => {
        &$g.list::<Tensor>().iter().collect::<Vec<_>>()
    };
    ($g:ident ot) => {
        $g.v::<Option<Tensor>>().as_ref()
    };
    ($g:ident us) => {
        &$g.sizes()
    };
    ($g:ident is) => {
        &$g.list::<i64>()
    };
    ($g:ident fs) => {
        &$g.list::<f64>()
    };
    ($g:ident ix) => {
        &$g.list::<Index>()
    };
    ($g:ident s) => {
        [
            "ij,jk->ik",
            "ii",
            "i->",
            "...i,i...",
            "ij,ij",
            "->",
            ",,",
            "i,j->ji",
            "aa->a",
            "\u{1F600}",
        ][$g.v::<usize>() % 10]
    };
    ($g:ident c) => {
        $g.at()
    };
    ($g:ident sz) => {
        $g.v::<usize>()
    };
    ($g:ident own) => {
        $g.sizes()
    };
    ($g:ident relu) => {
        genesis::nn::Relu
    };
    ($g:ident rg) => {
        $g.v::<usize>()..$g.v::<usize>()
    };
}

pub(super) use arg;

/// Methods of a tensor, but those of tables of ops, which bring their calls.
macro_rules! methods {
    ($($name:ident($($kind:ident)*);)*) => {
        pub(super) fn methods(rows: &mut Vec<Row>) {
            $(rows.push(Row::new(
                stringify!($name),
                |g| {
                    let x = g.tensor();
                    done(x.$name($(arg!(g $kind)),*))
                },
));)*
        }
    };
}

/// Functions that make tensors.
macro_rules! functions {
    ($($name:ident($($kind:ident)*);)*) => {
        pub(super) fn functions(rows: &mut Vec<Row>) {
            $(rows.push(Row::new(stringify!($name), |g| done(Tensor::$name($(arg!(g $kind)),*))));)*
        }
    };
}

methods! {
    empty_like(); full_like(v); zeros_like(); ones_like(); to_f64_vec(); item(); contiguous(); copy();
    to_dtype(v); copy_(t); fill_(v); zero_(); clamp_(v v); nan_to_num_(v v v); lerp_(t t); addcmul_(t t v);
    addcdiv_(t t v); addmm_(t t v v); tril_(v); triu_(v); fill_diagonal_(v); masked_fill_(t v);
    masked_scatter_(t t); index_fill_(v t v); index_add_(v t t v); index_copy_(v t t); scatter_(v t t);
    scatter_add_(v t t); scatter_reduce_(v t t v v); put_(t t v); index_put_(ix t v); set(ix t); dim(v);
    as_strided(us is v); unfold(v v v); diagonal(v v v); flip(is); slice_step(v v v v); to_device(v);
    to_device_non_blocking(v); pin_memory(); view(is); reshape(us); flatten(v v); permute(is);
    transpose(v v); t(); broadcast_to(us); squeeze(v); unsqueeze(v); narrow(v v v); slice(v rg); step(v v);
    select(v v); softplus(v v); log_sigmoid(); leaky_relu(v); prelu(t); elu(v); selu(); celu(v);
    hardswish(); hardsigmoid(); hardtanh(v v); relu6(); mish(); gelu_tanh(); softsign(); tanhshrink();
    hardshrink(v); softshrink(v); threshold(v v); glu(v); softmin(v); matmul_bias(t t);
    matmul_bias_gelu(t t); matmul_bias_activation(t t v); div_rounded(t v); rsub_scalar(v); rpow_scalar(v);
    float_power(t); fmax(t); fmin(t); bitwise_left_shift(t); bitwise_right_shift(t);
    heaviside(t); signbit(); sgn(); deg2rad(); rad2deg(); logit(v); isposinf(); isneginf(); isclose(t r);
    allclose(t r); equal(t); isin(t); tensor_split(v v); tensor_split_at(is v); swapaxes(v v); ravel();
    unflatten(v is); expand_as(t); reshape_as(t); rot90(v v v); atleast_1d(); atleast_2d(); atleast_3d();
    fliplr(); flipud(); combinations(v v); tile(us); diff(v v); trace(); diag(v); diag_embed(v v v);
    scaled_dot_product_attention(t t r); attention_with_lse(t t r); attention_backend(t t r);
    embedding_bag(t r); conv(t ot r); conv_transpose(t ot r us); ctc_loss(t us us r); mse_loss(t v);
    l1_loss(t v); huber_loss(t v v); smooth_l1_loss(t v v); binary_cross_entropy(t v);
    binary_cross_entropy_with_logits(t v); binary_cross_entropy_with_pos_weight(t t v); kl_div(t v v);
    poisson_nll_loss(t v v v v); gaussian_nll_loss(t t v v v); hinge_embedding_loss(t v v);
    soft_margin_loss(t v); margin_ranking_loss(t t v v); cosine_similarity(t v v); normalize(v v v);
    pairwise_distance(t v v v); cosine_embedding_loss(t t v v); sub_scalar(v); clamp(v v); square(); sign();
    embedding(t); prod_dim(v v); prod(); cumprod(v); any_dims(is v); all_dims_true(is v); any(); all();
    var_dims(is v v); std_dims(is v v); vector_norm(v is v); logsumexp(is v); argmax_all(); argmin_all();
    take(t); gather(v t); take_along_dim(t v); index_select(v t); index_add(v t t v); scatter(v t t);
    scatter_add(v t t); index(ix); index_put(ix t v); nonzero(); masked_select(t); interpolate(r v v);
    split_sizes(us v); split(v v); chunk(v v); unbind(v); repeat(us); repeat_interleave(v v); roll(v v);
    movedim(is is); squeeze_dims(is); expand(is); tril(v); triu(v); vdot(t); inner(t); tensordot(t is is);
    kron(t); cross(t v); addbmm(t t v v); addr(t t v v); cov(v); corrcoef(); dist(t v); cdist(t v);
    to_bool(); logical_and(t); logical_or(t); logical_xor(t); logical_not(); bitwise_not(); isnan();
    isinf(); isfinite(); nan_to_num(v v v); lerp(t t); lerp_scalar(t v); addcmul(t t v); addcdiv(t t v);
    masked_fill(t v); clamp_min(t); clamp_max(t); round_decimals(v); cross_entropy(t v); nll_loss(t r);
    cross_entropy_loss(t r); linear_cross_entropy(t ot t r); multi_margin_loss(t r); multilabel_margin_loss(t v);
    multilabel_soft_margin_loss(t ot v); matmul(t); scaled_matmul(t t t v); int_mm(t); layer_norm(t t v);
    rms_norm(t v); local_response_norm(v v v v); group_norm(v ot ot v); layer_norm_over(us ot ot v);
    rms_norm_over(us ot v); sort(v v); argsort(v v); topk(v v v); max_with_index(v v); min_with_index(v v);
    pad(is v); one_hot(v); one_hot_of_all(); im2col(r); col2im(r us); pixel_shuffle(v); pixel_unshuffle(v);
    channel_shuffle(v); max_pool(r); adaptive_max_pool(us); avg_pool(r v v); adaptive_avg_pool(us);
    lp_pool(v r); max_unpool(t us); mm(t); bmm(t); mv(t); dot(t); outer(t); addmm(t t v v);
    baddbmm(t t v v); addmv(t t v v); bernoulli(); gamma(); poisson(); multinomial(v v); dropout(v);
    uniform_(v v); normal_(v v); log_normal_(v v); exponential_(v); cauchy_(v v); geometric_(v);
    random_(v v); bernoulli_(v); sum(); sum_dims(is v); mean(); mean_dims(is v); max(); max_dims(is v);
    min(); min_dims(is v); argmax(v); argmin(v); grid_sample(t r); affine_grid(us v); cumsum(v); cummax(v);
    cummin(v); logcumsumexp(v); scatter_reduce(v t t v v); index_reduce(v t t v v); index_copy(v t t);
    index_fill(v t v); scatter_value(v t v); put(t t v); masked_scatter(t t); slice_scatter(t v v v v);
    select_scatter(t v v); diagonal_scatter(t v v v); with_index(ix t); searchsorted(t v); bucketize(t v);
    where_(t t); softmax(v); log_softmax(v); polygamma(v); nuclear_norm(v); var_mean(is v v);
    std_mean(is v v); aminmax(is v); count_nonzero(is); nansum(is v); nanmean(is v); median_dim(v v);
    median(); nanmedian_dim(v v); nanmedian(); kthvalue(v v v); mode(v v); quantile(v v v); histc(v v v);
    bincount(ot v); unique(v v); unique_consecutive(v v); unique_dim(v v v); square_(); sign_(); deg2rad_();
    rad2deg_(); logical_not_(); bitwise_not_(); logical_and_(t); logical_or_(t); logical_xor_(t);
    clamp_min_(t); clamp_max_(t); sub_scalar_(v);
}

functions! {
    full(us v c); zeros(us c); ones(us c); empty(us c); scalar(v c); arange(v v v c); logspace(v v v v c);
    linspace(v v v c); from_f64(fs us c); broadcast_tensors(ts); hstack(ts); vstack(ts); dstack(ts);
    column_stack(ts); block_diag(ts); meshgrid(ts v); cartesian_prod(ts); tril_indices(v v v c);
    triu_indices(v v v c); cat(ts v); stack(ts v); eye(v v c); multi_dot(ts); einsum(s ts); rand(us c);
    uniform(us v v c); randn(us c); normal(us v v c); randint(v v us c); randperm(v c);
}

/// Those whose arguments are of their own kinds.
pub(super) fn others(rows: &mut Vec<Row>) {
    let mut row = |name, call| rows.push(Row::new(name, call));
    row("from_vec", |g| done(Tensor::from_vec(g.list::<f64>())));
    row("from_slice", |g| done(Tensor::from_slice(&g.list::<i64>(), &g.sizes())));
    row("from_slice_on", |g| {
        done(Tensor::from_slice_on(&g.list::<f64>(), &g.sizes(), Device::Cpu))
    });
    row("to_vec", |g| done(g.tensor().to_vec::<f32>()));
    row("item_as", |g| done(g.tensor().item_as::<i64>()));
    row("arg", |g| done(g.tensor().arg::<f32, 2>().map(drop)));
    row("arg_mut", |g| done(g.tensor().arg_mut::<f32, 1>().map(drop)));
    row("varlen_attn", |g| {
        let [q, k, v, a, b] = [(); 5].map(|()| g.tensor());
        let lengths =
            Varlen { cu_seqlens_q: &a, cu_seqlens_k: &b, max_seqlen_q: g.v(), max_seqlen_k: g.v() };
        done(q.varlen_attn(&k, &v, &lengths, &g.v::<Attention>()))
    });
    row("varlen_attn_with_lse", |g| {
        let [q, k, v, a, b] = [(); 5].map(|()| g.tensor());
        let lengths =
            Varlen { cu_seqlens_q: &a, cu_seqlens_k: &b, max_seqlen_q: g.v(), max_seqlen_k: g.v() };
        done(q.varlen_attn_with_lse(&k, &v, &lengths, &g.v::<Attention>()))
    });
    row("triplet_margin_loss", |g| {
        let [x, a, b] = [(); 3].map(|()| g.tensor());
        done(x.triplet_margin_loss([&a, &b], &g.v::<Triplet>()))
    });
    row("batch_norm", |g| {
        let [x, a, b] = [(); 3].map(|()| g.tensor());
        let running = g.v::<bool>().then_some((&a, &b));
        let stats = BatchStats { running, training: g.v(), momentum: g.v(), eps: g.v() };
        done(x.batch_norm(Some(&a), Some(&b), &stats))
    });
    row("show", |g| {
        let x = g.tensor();
        done(Ok(format!("{x} {x:?}").len()))
    });
    row("backward", |g| {
        let x = g.tensor();
        done(
            x.mul(&x)
                .and_then(|y| y.sum())
                .and_then(|y| y.mse_loss(&g.tensor(), Reduction::Sum))
                .and_then(|y| y.backward()),
        )
    });
}
