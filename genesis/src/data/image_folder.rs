//! Pictures in folders: one folder a class.

use std::fs;
use std::path::{Path, PathBuf};

use super::dataset::{Dataset, no_sample};
use super::image::Image;
use crate::error::{Error, Result};
use crate::files::ReadLimits;

/// PNG and JPEG files in `root/class/..`, with the number of their class.
///
/// Classes are numbered in the order of their names, samples stand in the order of their paths, on
/// every machine.
#[derive(Clone, Debug)]
pub struct ImageFolder {
    classes: Vec<String>,
    samples: Vec<(PathBuf, i64)>,
    limits: ReadLimits,
}

impl ImageFolder {
    /// The pictures below `root`.
    ///
    /// # Errors
    /// If it can't be read, or a class has no picture.
    pub fn open(root: impl AsRef<Path>) -> Result<ImageFolder> {
        let root = root.as_ref();
        let folders: Vec<PathBuf> = entries(root)?.into_iter().filter(|p| p.is_dir()).collect();
        let (mut classes, mut samples) = (Vec::new(), Vec::new());
        for folder in folders {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (before, class) = (samples.len(), classes.len() as i64);
            collect(&folder, class, &mut samples)?;
            if samples.len() == before {
                return Err(Error::io(format!("{}: no PNG or JPEG file", folder.display())));
            }
            classes.push(name);
        }
        if classes.is_empty() {
            return Err(Error::io(format!("{}: no folder of a class", root.display())));
        }
        Ok(ImageFolder { classes, samples, limits: ReadLimits::default() })
    }

    /// The same folder with other limits on its pictures.
    #[must_use]
    pub fn with_limits(self, limits: ReadLimits) -> ImageFolder {
        ImageFolder { limits, ..self }
    }

    /// The names of the classes.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Each picture's path and class.
    pub fn samples(&self) -> &[(PathBuf, i64)] {
        &self.samples
    }
}

impl Dataset for ImageFolder {
    type Item = (Image, i64);

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn get(&self, index: usize) -> Result<(Image, i64)> {
        let sample = self.samples.get(index);
        let (path, class) = sample.ok_or_else(|| no_sample("image folder", index, self.len()))?;
        Ok((Image::open_with(path, &self.limits)?, *class))
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let problem = |error| Error::io(format!("{}: {error}", folder.display()));
    let paths =
        fs::read_dir(folder).map_err(problem)?.map(|entry| Ok(entry.map_err(problem)?.path()));
    let mut paths = paths.collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn collect(folder: &Path, class: i64, samples: &mut Vec<(PathBuf, i64)>) -> Result<()> {
    for path in entries(folder)? {
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        // Links to folders are not followed: they may lead back.
        if path.is_dir() && !path.is_symlink() {
            collect(&path, class, samples)?;
        } else if ["png", "jpg", "jpeg"].contains(&&*extension) {
            samples.push((path, class));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_classes() {
        let root = tempfile::tempdir().unwrap();
        for (name, value) in [("dog/b.png", 0.0), ("dog/a.png", 1.0), ("cat/deep/c.PNG", 0.2)] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            Image::new(1, 1, 1, vec![value]).unwrap().save_png(path).unwrap();
        }
        fs::write(root.path().join("dog/notes.txt"), "x").unwrap();
        let folder = ImageFolder::open(root.path()).unwrap();
        assert_eq!(
            (folder.classes(), folder.len()),
            (&["cat".to_owned(), "dog".to_owned()][..], 3)
        );
        let all: Vec<(f32, i64)> =
            (0..3).map(|i| folder.get(i).unwrap()).map(|(p, c)| (p.pixels()[0], c)).collect();
        assert_eq!(all, [(51.0 / 255.0, 0), (1.0, 1), (0.0, 1)]);
        fs::create_dir(root.path().join("empty")).unwrap();
        let error = ImageFolder::open(root.path()).unwrap_err().to_string();
        assert!(error.ends_with("empty: no PNG or JPEG file"), "{error}");
    }
}
