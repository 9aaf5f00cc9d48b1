//! Problems as a person writes them: `matmul bf16 m=4096,n=4096,k=4096 transpose=b`.

use std::fmt;
use std::path::Path;

use genesis::DType;

use crate::cli::Failure;

/// A problem to tune for.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Entry {
    pub(super) kernel: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<(String, i64)>,
    /// The parameters that lie transposed.
    pub(super) transpose: Vec<String>,
}

impl Entry {
    /// The sizes in the key's order; those that are not named are 1.
    pub(super) fn sizes(&self, kernel: &str, key: &[&str]) -> Result<Vec<i64>, Failure> {
        if let Some((name, _)) = self.shape.iter().find(|(name, _)| !key.contains(&name.as_str())) {
            let key = key.join(", ");
            let message = format!("{kernel} has no size {name}; its sizes are {key}");
            return Err(Failure::Message(message));
        }
        let size = |name: &&str| {
            self.shape.iter().find(|(given, _)| given == name).map_or(1, |&(_, size)| size)
        };
        Ok(key.iter().map(size).collect())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> =
            self.shape.iter().map(|(name, size)| format!("{name}={size}")).collect();
        write!(f, "{} {} {}", self.kernel, self.dtype, shape.join(","))?;
        if self.transpose.is_empty() {
            return Ok(());
        }
        write!(f, " transpose={}", self.transpose.join(","))
    }
}

/// `m=4096`
pub(super) fn size(text: &str) -> Result<(String, i64), String> {
    let (name, size) = text.split_once('=').ok_or("is NAME=SIZE, such as m=4096")?;
    match size.parse() {
        Ok(size) if size > 0 => Ok((name.to_owned(), size)),
        _ => Err(format!("{size} is not a size")),
    }
}

/// The problems of a file; empty lines and what follows `#` say nothing.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Message(format!("{}: {error}", path.display())))?;
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    let entries = lines.filter_map(|(number, line)| {
        let line = line.split('#').next().unwrap_or("").trim();
        (!line.is_empty()).then(|| {
            parse(line)
                .map_err(|why| Failure::Message(format!("{}:{number}: {why}", path.display())))
        })
    });
    entries.collect()
}

fn parse(line: &str) -> Result<Entry, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [kernel, dtype, shape, rest @ ..] = &words[..] else {
        return Err("write KERNEL DTYPE SHAPE [transpose=NAMES]".to_owned());
    };
    let dtype = DType::from_name(dtype).ok_or_else(|| format!("{dtype} is not a dtype"))?;
    let shape = shape.split(',').map(size).collect::<Result<Vec<_>, _>>()?;
    let transpose = match rest {
        [] => Vec::new(),
        [word] => match word.strip_prefix("transpose=") {
            Some(names) => names.split(',').map(str::to_owned).collect(),
            None => return Err(format!("{word} is not transpose=NAMES")),
        },
        _ => return Err("there is too much on this line".to_owned()),
    };
    Ok(Entry { kernel: (*kernel).to_owned(), dtype, shape, transpose })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back() {
        for line in ["matmul bf16 m=512,n=512,k=64", "matmul f32 m=1,n=2,k=3 transpose=a,b"] {
            assert_eq!(parse(line).expect("it is well formed").to_string(), line);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let why = |line| parse(line).expect_err("it is wrong");
        assert_eq!(why("matmul"), "write KERNEL DTYPE SHAPE [transpose=NAMES]");
        assert_eq!(why("matmul b16 m=1"), "b16 is not a dtype");
        assert_eq!(why("matmul bf16 m=0"), "0 is not a size");
        assert_eq!(why("matmul bf16 m=1 b"), "b is not transpose=NAMES");
    }

    #[test]
    fn sizes_come_in_the_keys_order() {
        let entry = parse("matmul bf16 k=3,m=2").expect("it is well formed");
        assert!(
            matches!(entry.sizes("matmul", &["batch", "m", "k"]), Ok(sizes) if sizes == [1, 2, 3])
        );
        assert!(entry.sizes("matmul", &["m"]).is_err());
    }

    #[test]
    fn the_committed_list_is_well_formed() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/tuned/h200.list");
        let entries = read(&path).unwrap_or_default();
        assert!(entries.len() > 40, "{}", entries.len());
    }
}
