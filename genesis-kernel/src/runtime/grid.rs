//! How many programs a launch runs.

/// How many programs run along each axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Programs along axis 0.
    pub x: i64,
    /// Programs along axis 1.
    pub y: i64,
    /// Programs along axis 2.
    pub z: i64,
}

/// A number of programs: any integer type a person has at hand.
pub trait GridExtent {
    /// As i64; what does not fit saturates and is refused by the launch.
    fn extent(self) -> i64;
}

macro_rules! grid_extent {
    ($($ty:ty),*) => {$(
        impl GridExtent for $ty {
            fn extent(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )*};
}
grid_extent!(i32, i64, u32, u64, usize);

impl Grid {
    /// `x` programs along axis 0.
    pub fn x(x: impl GridExtent) -> Grid {
        Grid { x: x.extent(), y: 1, z: 1 }
    }

    /// `x * y` programs.
    pub fn xy(x: impl GridExtent, y: impl GridExtent) -> Grid {
        Grid { x: x.extent(), y: y.extent(), z: 1 }
    }

    /// `x * y * z` programs.
    pub fn xyz(x: impl GridExtent, y: impl GridExtent, z: impl GridExtent) -> Grid {
        Grid { x: x.extent(), y: y.extent(), z: z.extent() }
    }
}
