//! Linear algebra over F2 on words: a vector is a `u32`, addition is XOR.
//!
//! A layout is such a matrix, so composing, inverting and measuring layouts are a few lines each.
//!
//! ```text
//! bases      0b011, 0b110       span: 0, 0b011, 0b110, 0b101
//! solve 0b101 -> both (mask 0b11);  solve 0b100 -> none
//! ```

/// The XOR of the bases whose bit is set in `index`.
pub fn combine(bases: &[u32], index: u32) -> u32 {
    let picked = bases.iter().enumerate().filter(|(i, _)| index >> i & 1 == 1);
    picked.fold(0, |sum, (_, &basis)| sum ^ basis)
}

/// A row-reduced set of vectors that remembers which inputs make each row.
#[derive(Clone, Debug, Default)]
pub struct Echelon {
    /// `(vector, mask of the inputs that sum to it)`, leading bits distinct, largest first.
    rows: Vec<(u32, u32)>,
}

impl Echelon {
    /// Reduces these vectors. Of dependent ones the earlier stay.
    pub fn new(bases: &[u32]) -> Echelon {
        let mut echelon = Echelon::default();
        for (i, &basis) in bases.iter().enumerate() {
            echelon.insert(basis, 1 << i);
        }
        echelon
    }

    /// Adds a vector made of the inputs in `mask`; false where it depends on those before it.
    pub fn insert(&mut self, vector: u32, mask: u32) -> bool {
        let (rest, used) = self.reduce(vector);
        if rest == 0 {
            return false;
        }
        let at = self.rows.partition_point(|&(row, _)| row > rest);
        self.rows.insert(at, (rest, mask ^ used));
        true
    }

    /// What is left of a vector after the rows are taken out, and the inputs that were used.
    fn reduce(&self, mut vector: u32) -> (u32, u32) {
        let mut used = 0;
        for &(row, mask) in &self.rows {
            if vector ^ row < vector {
                vector ^= row;
                used ^= mask;
            }
        }
        (vector, used)
    }

    /// The mask of inputs that sum to `target`, if any.
    pub fn solve(&self, target: u32) -> Option<u32> {
        let (rest, used) = self.reduce(target);
        (rest == 0).then_some(used)
    }

    /// The dimension of the span.
    pub fn rank(&self) -> usize {
        self.rows.len()
    }

    /// Unit vectors below `1 << dim` that complete the span to the whole space.
    pub fn complement(&self, dim: usize) -> Vec<u32> {
        let leading = self.rows.iter().fold(0, |bits, &(row, _)| bits | 1 << row.ilog2());
        (0..dim as u32).map(|i| 1 << i).filter(|unit| leading & unit == 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solves_what_is_in_the_span_and_nothing_else() {
        let bases = [0b0011, 0b0110, 0b0101, 0b1000];
        let echelon = Echelon::new(&bases);
        assert_eq!(echelon.rank(), 3);
        for target in 0..16 {
            let reachable = (0..16).any(|mask| combine(&bases, mask) == target);
            match echelon.solve(target) {
                Some(mask) => assert_eq!(combine(&bases, mask), target),
                None => assert!(!reachable),
            }
            assert_eq!(echelon.solve(target).is_some(), reachable);
        }
    }

    #[test]
    fn complement_completes_the_space() {
        let bases = [0b0011, 0b0110];
        let rest = Echelon::new(&bases).complement(4);
        let all: Vec<u32> = bases.iter().chain(&rest).copied().collect();
        assert_eq!(Echelon::new(&all).rank(), 4);
        assert_eq!(all.len(), 4);
    }
}
