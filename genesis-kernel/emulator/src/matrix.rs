//! Matrices: `ldmatrix` and `stmatrix`, and the products of a warp or of four.
//!
//! ```text
//! sums of m16n8: lane l holds row l / 4 (+ 8), columns 2 (l % 4) and the next one
//! m64nN: warp w of four holds rows 16 w .. 16 w + 15 so, every 8 columns anew
//! ```

use std::collections::BTreeMap;

use super::alu::element;
use super::cluster::{After, Cluster, Products};
use super::fault::Fault;
use super::memory::swizzled;
use super::program::{Addr, Arg, Element, Product, RANK_SHIFT, Reg, Sum};
use super::shadow::{Epoch, Way};
use super::warp::{LANES, lanes};

/// Warps that multiply together.
const GROUP: usize = 4;
/// Rows of a product of four warps.
const ROWS: u32 = 64;
/// Bytes along K that one product of four warps takes.
const STEP_BYTES: u32 = 32;

/// Groups of products of which it is kept what came before them.
const KEPT_GROUPS: u32 = 16;

/// A matrix of numbers, row after row.
struct Matrix {
    columns: usize,
    numbers: Vec<f64>,
}

impl Matrix {
    fn new(rows: usize, columns: usize) -> Matrix {
        Matrix { columns, numbers: vec![0.0; rows * columns] }
    }

    fn at(&mut self, row: usize, column: usize) -> &mut f64 {
        &mut self.numbers[row * self.columns + column]
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.numbers[row * self.columns..][..self.columns]
    }
}

/// What a descriptor says of an operand in shared memory.
struct Descriptor {
    start: u32,
    leading: u32,
    other: u32,
    swizzle: u32,
}

impl Descriptor {
    fn new(bits: u64) -> Descriptor {
        let field = |shift: u32| ((bits >> shift & 0x3fff) << 4) as u32;
        let swizzle = [0, 128, 64, 32][(bits >> 62) as usize];
        Descriptor { start: field(0), leading: field(16), other: field(32), swizzle }
    }

    /// The address of an element: its row (of A; the column of B) and its place along K, both in
    /// elements of `size` bytes.
    fn address(&self, row: u32, k: u32, size: u32, transposed: bool) -> u32 {
        let width = self.swizzle;
        let plain = match (transposed, width) {
            (false, 0) => {
                let byte = k * size;
                row / 8 * self.other + byte / 16 * self.leading + row % 8 * 16 + byte % 16
            }
            (false, _) => row / 8 * self.other + row % 8 * width + k * size,
            (true, 0) => {
                let byte = row * size;
                byte / 16 * self.other + k / 8 * self.leading + k % 8 * 16 + byte % 16
            }
            (true, _) => {
                let byte = row * size;
                byte / width * self.leading + k / 8 * self.other + k % 8 * width + byte % width
            }
        };
        swizzled(self.start + plain, width)
    }
}

impl Sum {
    /// A sum and products, as bits.
    fn added(self, before: u64, factors: impl Iterator<Item = (f64, f64)>) -> u64 {
        match self {
            Sum::F32 => {
                let all: f64 = factors.map(|(a, b)| a * b).sum();
                u64::from(((f64::from(f32::from_bits(before as u32)) + all) as f32).to_bits())
            }
            // Products of bytes are exact in f64, and sums of as many as one instruction adds.
            Sum::S32 => {
                let all: f64 = factors.map(|(a, b)| a * b).sum();
                u64::from((before as u32).wrapping_add(all as i64 as u32))
            }
            Sum::F64 => {
                let before = f64::from_bits(before);
                factors.fold(before, |sum, (a, b)| a.mul_add(b, sum)).to_bits()
            }
        }
    }
}

impl Cluster<'_> {
    /// The rows of matrix `i` are at the addresses of lanes 8 i ..; each register of a lane is two
    /// neighbors.
    pub(super) fn load_matrix(
        &mut self,
        number: usize,
        to: &[Reg],
        at: Addr,
        transposed: bool,
    ) -> Result<(), Fault> {
        let first = self.warps[number].first;
        for (i, &to) in to.iter().enumerate() {
            for lane in 0..LANES {
                let mut word = 0;
                for half in 0..2 {
                    let (outer, inner) = (lane / 4, lane % 4 * 2 + half);
                    let (row, column) = if transposed { (inner, outer) } else { (outer, inner) };
                    let from = 8 * i + row;
                    let address = self.address(number, from, at);
                    let (rank, byte) = self.shared_place(address, 16)?;
                    // The row is read by the lane that gives its address.
                    let access = self.access(first + from, Way::Thread);
                    let value =
                        self.read_shared(rank, byte + 2 * column, 2, first + from, access)?;
                    word |= value << (16 * half);
                }
                self.warps[number].set(to, lane, word);
            }
        }
        Ok(())
    }

    pub(super) fn store_matrix(
        &mut self,
        number: usize,
        from: &[Arg],
        at: Addr,
        transposed: bool,
    ) -> Result<(), Fault> {
        let first = self.warps[number].first;
        for (i, &from) in from.iter().enumerate() {
            for lane in 0..LANES {
                let word = self.warps[number].value(from, lane);
                for half in 0..2 {
                    let (outer, inner) = (lane / 4, lane % 4 * 2 + half);
                    let (row, column) = if transposed { (inner, outer) } else { (outer, inner) };
                    let to = 8 * i + row;
                    let address = self.address(number, to, at);
                    let (rank, byte) = self.shared_place(address, 16)?;
                    let access = self.access(first + to, Way::Thread);
                    let bytes = ((word >> (16 * half)) as u16).to_le_bytes();
                    self.write_shared(rank, byte + 2 * column, &bytes, first + to, access)?;
                }
            }
        }
        Ok(())
    }

    /// The product of one warp, m16n8.
    pub(super) fn warp_product(&mut self, number: usize, product: &Product) {
        let depth = product.depth as usize;
        let [left, right] = product.types;
        let mut a = Matrix::new(16, depth);
        let mut b = Matrix::new(8, depth);
        for lane in 0..LANES {
            let each = left.in_register();
            for (i, &arg) in product.a.iter().enumerate() {
                let (row, k) = (lane / 4 + 8 * (i % 2), i / 2 * depth / 2 + lane % 4 * each);
                for (j, value) in self.elements(number, lane, arg, left).enumerate() {
                    *a.at(row, k + j) = value;
                }
            }
            for (i, &arg) in product.b.iter().enumerate() {
                let k = i * depth / 2 + lane % 4 * each;
                for (j, value) in self.elements(number, lane, arg, right).enumerate() {
                    *b.at(lane / 4, k + j) = value;
                }
            }
        }
        self.add_products(number, product, 0, &a, &b, true);
    }

    /// The elements of a register.
    fn elements(
        &self,
        number: usize,
        lane: usize,
        arg: Arg,
        ty: Element,
    ) -> impl Iterator<Item = f64> + use<> {
        let word = self.warps[number].value(arg, lane);
        let bits = 8 * ty.bytes();
        let part = move |i: usize| word >> (i as u32 * bits) & (u64::MAX >> (64 - bits));
        (0..ty.in_register()).map(move |i| element(part(i), ty))
    }

    /// Adds the products to a warp's sums; its rows of `a` start at `first`.
    fn add_products(
        &mut self,
        number: usize,
        product: &Product,
        first: usize,
        a: &Matrix,
        b: &Matrix,
        adds: bool,
    ) {
        let signs = product.negates.map(|negates| if negates { -1.0 } else { 1.0 });
        let sign: f64 = signs.iter().product();
        for lane in 0..LANES {
            for (i, &to) in product.sums.iter().enumerate() {
                let row = first + lane / 4 + i % 4 / 2 * 8;
                let column = i / 4 * 8 + lane % 4 * 2 + i % 2;
                let factors = a.row(row).iter().zip(b.row(column)).map(|(&a, &b)| (sign * a, b));
                let before = self.warps[number].value(product.before[i], lane);
                let before = if adds { before } else { 0 };
                self.warps[number].set(to, lane, product.sum.added(before, factors));
            }
        }
    }

    /// The product of four warps, when the last of them comes.
    pub(super) fn group_product(
        &mut self,
        number: usize,
        mask: u32,
        product: &Product,
    ) -> Result<After, Fault> {
        self.warps[number].blocked |= mask;
        let first = number / GROUP * GROUP;
        let group = first..first + GROUP;
        if group.end > self.warps.len() {
            return Err(self.fault("a product of four warps, and there are fewer"));
        }
        let at = self.current as u32;
        let is_there = |warp: &super::warp::Warp| {
            warp.blocked == warp.alive && warp.alive != 0 && warp.next[0] == at
        };
        if !self.warps[group.clone()].iter().all(is_there) {
            return Ok(After::Told);
        }
        self.multiply(first, product)?;
        for warp in &mut self.warps[group] {
            let mask = std::mem::take(&mut warp.blocked);
            warp.advance(mask);
        }
        Ok(After::Told)
    }

    fn multiply(&mut self, first: usize, product: &Product) -> Result<(), Fault> {
        let depth = product.depth as usize;
        let epoch = self.begin_product(first, product);
        let [left, right] = product.types;
        if product.depth * left.bytes() != STEP_BYTES {
            return Err(self.fault("a product of a strange depth"));
        }
        let b = self.operand(
            first,
            product.b[0],
            product.columns,
            depth,
            right,
            product.transposed[1],
            epoch,
        )?;
        let a = match product.a[..] {
            [descriptor] => Some(self.operand(
                first,
                descriptor,
                ROWS,
                depth,
                left,
                product.transposed[0],
                epoch,
            )?),
            _ => None,
        };
        let adds = product.adds.is_none_or(|adds| self.warps[first].value(adds, 0) & 1 == 1);
        for (i, number) in (first..first + GROUP).enumerate() {
            match &a {
                Some(a) => self.add_products(number, product, 16 * i, a, &b, adds),
                None => {
                    let a = self.operand_in_registers(number, product);
                    self.add_products(number, product, 0, &a, &b, adds);
                }
            }
        }
        Ok(())
    }

    /// The moment of a product that the threads of a warpgroup begin together.
    ///
    /// A left operand in registers is what each thread has made of memory that it read before: when the
    /// product is over those reads are, in all threads, and who waits for it knows.
    fn begin_product(&mut self, first: usize, product: &Product) -> Epoch {
        let next = self.next_agent;
        let own = self.products.entry(first).or_insert_with(|| {
            self.next_agent += 1;
            Products { agent: next, begun: BTreeMap::new() }
        });
        let number = self.warps[first].committed + 1;
        if product.a.len() > 1 {
            let joined = own.begun.entry(number).or_default();
            let threads = self.warps[first].first..self.warps[first].first + GROUP * LANES;
            for clock in &mut self.clocks[threads] {
                joined.learn_from(clock);
                clock.tick();
            }
            // Warps of a group are never so many groups apart.
            own.begun.retain(|&group, _| group + KEPT_GROUPS > number);
        }
        Epoch { agent: own.agent, number }
    }

    fn operand_in_registers(&self, number: usize, product: &Product) -> Matrix {
        let ty = product.types[0];
        let mut a = Matrix::new(16, product.depth as usize);
        for lane in 0..LANES {
            for (j, &arg) in product.a.iter().enumerate() {
                let row = lane / 4 + 8 * (j & 1);
                let k = (16 * (j >> 1) + 4 * (lane % 4)) / ty.bytes() as usize;
                for (i, value) in self.elements(number, lane, arg, ty).enumerate() {
                    *a.at(row, k + i) = value;
                }
            }
        }
        a
    }

    /// An operand that a descriptor names, with its rows (of A, or the columns of B) as rows.
    #[expect(clippy::too_many_arguments, reason = "what an operand is, and who reads it")]
    fn operand(
        &mut self,
        first: usize,
        descriptor: Arg,
        rows: u32,
        depth: usize,
        ty: Element,
        transposed: bool,
        epoch: Epoch,
    ) -> Result<Matrix, Fault> {
        let warp = &self.warps[first];
        let base = u64::from(warp.rank) << RANK_SHIFT;
        let threads = [0, 1, 2, 3].map(|i| self.warps[first + i].first);
        let descriptor = Descriptor::new(warp.value(descriptor, 0));
        let access = self.access_of(epoch, Way::Async);
        let mut matrix = Matrix::new(rows as usize, depth);
        for row in 0..rows {
            for k in 0..depth as u32 {
                let address = descriptor.address(row, k, ty.bytes(), transposed);
                let (rank, byte) = self.shared_place(u64::from(address) | base, ty.bytes())?;
                let mut bits = 0;
                for thread in threads {
                    bits = self.read_shared(rank, byte, ty.bytes(), thread, access)?;
                }
                *matrix.at(row as usize, k as usize) = element(bits, ty);
            }
        }
        Ok(matrix)
    }

    pub(super) fn wait_products(&mut self, number: usize, mask: u32, pending: u32) {
        let first = number / GROUP * GROUP;
        let Some(products) = self.products.get(&first) else { return };
        let warp = &self.warps[number];
        let done = Epoch { agent: products.agent, number: warp.committed.saturating_sub(pending) };
        let begun = products.begun.range(..=done.number).next_back();
        for lane in lanes(mask) {
            let clock = &mut self.clocks[warp.first + lane];
            clock.add(done);
            begun.into_iter().for_each(|(_, joined)| clock.learn(joined));
        }
    }
}
