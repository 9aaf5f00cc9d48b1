//! Device mesh: ranks along named axes.

use super::group::ProcessGroup;
use crate::error::{Error, Result};

/// The ranks of a group as a grid: `("dp", 2), ("tp", 4)` are two rows of four. Ranks that lie on one
/// line along an axis are a group.
#[derive(Debug)]
pub struct DeviceMesh {
    axes: Vec<(String, usize)>,
    coordinates: Vec<usize>,
    groups: Vec<ProcessGroup>,
}

impl DeviceMesh {
    /// A mesh of all ranks of a group, in row-major order. All of them call it.
    ///
    /// # Errors
    /// If the extents do not multiply to the number of ranks, two axes have one name, or other ranks do not
    /// call it in time.
    pub fn new(group: &ProcessGroup, axes: &[(&str, usize)]) -> Result<DeviceMesh> {
        let product =
            axes.iter().try_fold(1usize, |product, (_, extent)| product.checked_mul(*extent));
        if product != Some(group.size()) {
            let message = format!("{axes:?} is not a mesh of {} ranks", group.size());
            return Err(Error::op("DeviceMesh", message));
        }
        if let Some((name, _)) = (0..axes.len())
            .find(|&i| axes[..i].iter().any(|(name, _)| *name == axes[i].0))
            .map(|i| axes[i])
        {
            return Err(Error::op("DeviceMesh", format!("two axes are called `{name}`")));
        }
        let coordinates = coordinates(group.rank(), axes);
        let mut groups = Vec::new();
        for axis in 0..axes.len() {
            // Ranks of one line differ along the axis alone.
            let color = axes
                .iter()
                .zip(&coordinates)
                .enumerate()
                .fold(0, |color, (i, (a, &c))| if i == axis { color } else { color * a.1 + c });
            let line = group.split(Some(color as u32), coordinates[axis])?;
            groups.push(line.ok_or_else(|| Error::op("DeviceMesh", "a rank is on no line"))?);
        }
        let axes = axes.iter().map(|&(name, extent)| (name.to_owned(), extent)).collect();
        Ok(DeviceMesh { axes, coordinates, groups })
    }

    /// The ranks on this rank's line along an axis.
    ///
    /// # Errors
    /// If there is no such axis.
    pub fn group(&self, axis: &str) -> Result<&ProcessGroup> {
        self.index(axis).map(|index| &self.groups[index])
    }

    /// Where this rank is along an axis.
    ///
    /// # Errors
    /// If there is no such axis.
    pub fn coordinate(&self, axis: &str) -> Result<usize> {
        self.index(axis).map(|index| self.coordinates[index])
    }

    fn index(&self, axis: &str) -> Result<usize> {
        self.axes.iter().position(|(name, _)| name == axis).ok_or_else(|| {
            let names: Vec<&str> = self.axes.iter().map(|(name, _)| name.as_str()).collect();
            let message = format!("no axis is called `{axis}`; there are {}", names.join(", "));
            Error::op("DeviceMesh", message)
        })
    }
}

fn coordinates(rank: usize, axes: &[(&str, usize)]) -> Vec<usize> {
    let mut rest = rank;
    let mut reversed: Vec<usize> = axes
        .iter()
        .rev()
        .map(|(_, extent)| {
            let coordinate = rest % extent;
            rest /= extent;
            coordinate
        })
        .collect();
    reversed.reverse();
    reversed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::{World, init_world};
    use genesis_kernel::runtime::Device;

    #[test]
    fn coordinates_are_row_major() {
        let axes = [("dp", 2), ("tp", 3)];
        assert_eq!(
            [0, 2, 3, 5].map(|rank| coordinates(rank, &axes)),
            [[0, 0], [0, 2], [1, 0], [1, 2]]
        );
    }

    #[test]
    fn meshes_that_do_not_fit_are_refused() {
        let group = init_world(World::alone(), Device::Cpu).unwrap();
        let error = |axes: &[(&str, usize)]| DeviceMesh::new(&group, axes).unwrap_err().to_string();
        assert!(error(&[("dp", 2)]).contains("is not a mesh of 1 ranks"));
        assert!(error(&[("dp", 1), ("dp", 1)]).contains("two axes are called `dp`"));
        let mesh = DeviceMesh::new(&group, &[("dp", 1), ("tp", 1)]).unwrap();
        assert_eq!((mesh.coordinate("tp").unwrap(), mesh.group("dp").unwrap().size()), (0, 1));
        let error = mesh.group("pp").unwrap_err().to_string();
        assert!(error.contains("no axis is called `pp`; there are dp, tp"), "{error}");
    }
}
