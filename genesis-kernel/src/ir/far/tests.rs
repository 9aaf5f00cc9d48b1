//! Sine and cosine far out, against values computed with 2400 bits and rounded to f64.

use super::{FAR, FAR_SINGLE, sine_of};
use crate::ir::{DType, Scalar, UnaryOp, scalar};

/// The bits of an argument, of its sine and of its cosine. Among them is the f64 that is nearest to a
/// multiple of pi/2.
const EXACT: &[(u64, u64, u64)] = &[
    (0x4415af1d78b58c40, 0xbfe4a5e605fd6450, 0x3fe872720fc60d3d),
    (0x4480f0cf064dd592, 0xbfeb453ab76bf397, 0x3fe0be2cef01c8f4),
    (0xc415af1d78b58c40, 0x3fe4a5e605fd6450, 0x3fe872720fc60d3d),
    (0x42c0000000000001, 0x3fe72a3702e87033, 0x3fe613ac76442eee),
    (0x4331c37937e08000, 0xbfecdad29f3bc197, 0xbfdbab6bd014d7f7),
    (0x4341c37937e08000, 0x3fe8f334432ebba5, 0xbfe40991e398dbfc),
    (0x43b0000000000000, 0xbfea94adab06665c, 0xbfe1d146047d6947),
    (0x4630000000000000, 0xbfebe8ed97ac1f59, 0x3fdf4eb3ff66e36d),
    (0x47d2ced32a16a1b1, 0x3fef6697d83a3263, 0xbfc8a7bf3274dbee),
    (0x47efffffe0000000, 0xbfe0b33665089575, 0x3feb4bf2c79bdfce),
    (0x47e0000000000000, 0x3fe3f2c62cde42bd, 0x3fe90571d9316bcc),
    (0x4c70000000000000, 0xbfdea642f4f78780, 0xbfec17843662ee23),
    (0xd2b0000000000000, 0xbfef45bc0cf32e45, 0x3fcb23e529a72db7),
    (0x54b249ad2594c37d, 0xbfd85c5e5b929359, 0x3fed9757496841f5),
    (0x6974e718d7d7625a, 0xbfe49b644938c64c, 0x3fe87b4df51f679e),
    (0x7e37e43c8800759c, 0xbfea2c16b010e385, 0xbfe2699022adc4c1),
    (0x7fefffffffffffff, 0x3f7452fc98b34e97, 0xbfefffe62ecfab75),
    (0x7fe0000000000000, 0x3fe205248cbdb760, 0xbfea719f26c232bf),
    (0x7506ac5b262ca1ff, 0x3ff0000000000000, 0xbc214ae72e6ba22f),
    (0xf506ac5b262ca1ff, 0xbff0000000000000, 0xbc214ae72e6ba22f),
    (0x7506ac5b262ca1ff, 0x3ff0000000000000, 0xbc214ae72e6ba22f),
    (0x42cb48eb57e00000, 0xbfef704d9e7147b5, 0xbfc7de8de6da7aae),
    (0xc2c2309ce5400000, 0x3fed7df55512cb4f, 0x3fd8d64caded21f5),
    (0xd7765132714d4748, 0xbfd85bb0ea903d0a, 0x3fed977afb1072c3),
    (0xc5dd23f083125f20, 0xbfc279f8bf712114, 0x3fefaa34b7811970),
    (0x48c95319841db208, 0xbfb2e5198fcacd14, 0x3fefe9a7e90790cf),
    (0xfcf099950c2c0146, 0xbfe2a39528c66a70, 0xbfea02e4be133d4a),
    (0x5e811e20b87b382e, 0xbfd94b5d9964b8e1, 0xbfed650b0a2a3214),
    (0x4880f21ddba75929, 0x3fddb8d81342b70d, 0x3fec5703bde06da8),
    (0xe6ff28c104724c60, 0xbfedceff0d192c08, 0x3fd746c73b952eb4),
    (0xeb193bd04d2bcc16, 0x3fbbfa4c33bec90a, 0x3fefceee542ea67e),
    (0xdc2f9ebdac7131a3, 0x3fe95e5c7516fd6b, 0x3fe38135877bebb2),
    (0xc5b4a23d58d69964, 0x3fe18d319719e562, 0xbfeac1d2abff0350),
    (0xcbf92276649df154, 0x3fef81fed8d39b31, 0x3fc65d253cd6a3db),
    (0xe691a61dbf29c77f, 0xbfeaa381a521cc35, 0xbfe1bb1309b1ce97),
    (0xe745f5572031e26c, 0xbfe769f765c087f7, 0x3fe5d00401fd4bed),
    (0xe5c907a70c1e840b, 0xbfde05241a4b6c08, 0x3fec42e1c30ae944),
    (0xea57f150535c5d62, 0x3fee1d77c0e2a02e, 0xbfd5a40682996172),
    (0x64cc6f8770a0d7e6, 0xbfeff95f88413ecf, 0xbfa49705efe85541),
    (0x6085c90a94997b0f, 0xbfeb494a6fc2e2b3, 0x3fe0b78da8725de4),
    (0xd2ab2f14c98f45d4, 0xbfb65c74b37995f6, 0x3fefe0b057427087),
    (0xd25930d6ea99ba40, 0x3fe89cfea4a7be11, 0xbfe4731b0345135c),
    (0x645e00902cafdc0c, 0xbf851a385f150f25, 0x3fefff90ab428f53),
    (0x71649b64a137c97a, 0x3fe5b83e075895f7, 0xbfe78006abf37d30),
    (0xc76830e07ad61432, 0xbfe2d8e71315b555, 0x3fe9dc5c64856023),
    (0x4d426e8755ddd598, 0x3fefc9b3266a6afc, 0xbfbd6d3476cbacee),
    (0x6200a097c9ec8dc4, 0xbfec4f92fd7fa801, 0x3fddd527922a17f6),
    (0xed8c3baea91dbc1a, 0xbfd434ccf63baab2, 0x3fee5cfdd53ea536),
    (0x676571242563fdc1, 0x3feef3059920ff50, 0xbfd043ef5636eef2),
    (0x592947403198023a, 0xbfeffa6a93ac5533, 0xbfa2e69002ba9490),
    (0xdffd70820e2febd0, 0xbfe4a30e7ab4ccd2, 0x3fe874d843a39df9),
    (0x7f3795e82364e2b2, 0xbfcbf238beea2ecc, 0xbfef3a5e6dd58abe),
    (0xed40f88081765a84, 0xbfe29765933b2029, 0x3fea0b9bd664777e),
    (0x6faa5aa3c927e891, 0x3fed85d5febf761c, 0x3fd8b0c0d13bee25),
    (0x6e548db40b6ee9d6, 0x3faf69f782130a9f, 0x3feff090eff5dd27),
    (0x5b705c6af1e19cb0, 0x3fc774d33234dc0f, 0xbfef75467d1b7dfb),
    (0x6042b0537f38ca72, 0xbfed23d9296a9de2, 0x3fda726280eeb039),
    (0x4a30f17a306fb8ee, 0xbfec8fca4ac7d93d, 0xbfdcdc41f9ab19c1),
    (0x73e211c70d7a0ac4, 0xbfc8662f24162c3e, 0xbfef69cb0f95de3f),
    (0x5296415479d568f0, 0x3f9829578a0fe2a7, 0x3feffdb8241a87ad),
    (0x7a814a0f9e552df6, 0x3fd4fb12ff539453, 0x3fee3b4ca25739a5),
    (0x5f78ca81808e40ee, 0xbfe4c709ad7db794, 0x3fe8564e16db2581),
    (0xfb4d1bc52cdc6d55, 0x3fd8efe9cf38a2dd, 0x3fed788d8325c067),
    (0x7a0b4d66a2d4a1be, 0x3fefcc943a1b015f, 0x3fbca36946f7af95),
    (0x59bf52ddf4762510, 0x3fe2adcf6bc9f1c6, 0x3fe9fb8d853f274f),
    (0xcc62d1c9ae4d76fb, 0x3fefe815516ec779, 0x3fb38c3019a1ef5f),
    (0xd190316908f84d08, 0x3fd14b62687e6d74, 0x3feecf3b6d84d285),
    (0xf7f43435cc905939, 0xbfe87b2417100e3c, 0x3fe49b960628b8d2),
    (0xc306b4013f11b5e8, 0xbfefffec928f18c2, 0x3f71a1700ebb9e6d),
    (0x5a6f3fe39c40406c, 0x3fef306a8f206fb5, 0xbfcca1e571a162c5),
    (0xeef74e69a5cc8f97, 0x3fdf3740ee0e2d28, 0xbfebef7dd16faf92),
    (0x7a765e7e42cc46f4, 0xbfe9ed7f1772e9bd, 0xbfe2c14d6ae6b876),
    (0xdbf7b4514544c19a, 0xbfee031b74f68405, 0x3fd6349ecaaa9467),
    (0x42e2d97c7f3321d2, 0xbf7a792d384e6f42, 0x3fefffd4327951cd),
    (0x451921fb54442d18, 0x3fef90a59f6fdfed, 0x3fc5086f5004ca1d),
    (0x4782d97c7f3321d2, 0xbfc3e5e6070f1523, 0x3fef9c69620bfb71),
    (0x49c921fb54442d18, 0x3fc6da5a62be3b00, 0x3fef7c60dd3bca04),
    (0x4c22d97c7f3321d2, 0x3fef0f19054b5dd4, 0x3fced020655e3321),
    (0x4e72d97c7f3321d2, 0x3fd191d335d99bab, 0x3feec54311d9402d),
    (0x50b921fb54442d18, 0xbfef7015272e477b, 0xbfc7e33362cbf30d),
    (0x5312d97c7f3321d2, 0xbfe3d57004737a55, 0xbfe91cb955644435),
    (0x554921fb54442d18, 0x3fee8dd77f7905f0, 0xbfd3055aeec78e9b),
    (0x579921fb54442d18, 0xbfe04b51fcf2c824, 0x3feb8a7520051746),
    (0x59f921fb54442d18, 0x3fda9e1d6ae9ba06, 0xbfed19e331ff8adc),
    (0x5c3921fb54442d18, 0x3fe29044e03bc489, 0xbfea10b0da37dfdc),
    (0x5ea2d97c7f3321d2, 0x3fe34e1e0067ca3a, 0x3fe9855351bc563d),
    (0x60f2d97c7f3321d2, 0x3fe2883fbb2b80bb, 0xbfea16653cc83424),
    (0x633921fb54442d18, 0xbfea7bffa50d7e6a, 0x3fe1f5e0c9b40710),
    (0x658921fb54442d18, 0x3fe3e7a2799e383c, 0xbfe90e4f54c2dd58),
    (0x67e2d97c7f3321d2, 0xbfb8da5607ae0f2e, 0x3fefd94df522a2a9),
    (0x6a32d97c7f3321d2, 0xbf98253881781a47, 0xbfeffdb8eb3e1962),
    (0x6c82d97c7f3321d2, 0xbfd7ba4aa6c4f9f3, 0xbfedb8318dab9ddd),
    (0x6eb921fb54442d18, 0x3fc5540360375162, 0x3fef8d7a09a9f52c),
    (0x7122d97c7f3321d2, 0xbfeffd38705f66d9, 0x3f9aac3f297cc254),
    (0x7372d97c7f3321d2, 0x3fe1f0009549b7be, 0x3fea7ffac66b2a32),
    (0x75a921fb54442d18, 0xbfdf46fe3abc2939, 0x3febeb16c0c046c1),
    (0x77f921fb54442d18, 0xbfeb9ec89baae023, 0x3fe028c5a484d098),
    (0x7a62d97c7f3321d2, 0x3fe973ca2dada12a, 0x3fe36536b9d1389c),
    (0x7c9921fb54442d18, 0xbfebbe7eb0610ca1, 0x3fdfe42c4e966a10),
];

fn steps(a: f64, b: f64) -> u64 {
    let ordered = |x: f64| {
        let bits = x.to_bits() as i64;
        if bits < 0 { i64::MIN - bits } else { bits }
    };
    ordered(a).abs_diff(ordered(b))
}

#[test]
fn agrees_with_exact_values() {
    for &(x, sine, cosine) in EXACT {
        let x = f64::from_bits(x);
        for (quarters, want) in [(0, sine), (1, cosine)] {
            let (got, want) = (sine_of(DType::F64, x, quarters), f64::from_bits(want));
            let off = steps(got, want);
            assert!(off <= 1, "{quarters} quarters from {x:e}: {got:e}, not {want:e}: {off} ULP");
        }
    }
}

#[test]
fn an_infinity_has_no_sine_and_what_is_near_is_left_to_others() {
    let of = |x: f64, quarters| sine_of(DType::F64, x, quarters);
    assert!(of(f64::INFINITY, 0).is_nan() && of(f64::NEG_INFINITY, 1).is_nan());
    for x in [0.0, 1.0, -FAR, FAR, f64::NAN] {
        assert_eq!(of(x, 0).to_bits(), 0, "{x}");
    }
    assert_eq!(sine_of(DType::F32, FAR_SINGLE, 0).to_bits(), 0);
    assert_ne!(sine_of(DType::F32, FAR_SINGLE + 1.0, 0), 0.0);
}

#[test]
fn an_f32_is_rounded_once() {
    let x = Scalar::float(DType::F32, 1e20);
    let exact = x.to_f64().sin();
    assert_eq!(scalar::unary(UnaryOp::SinFar, x), Scalar::float(DType::F32, exact));
}
