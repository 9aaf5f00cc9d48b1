//! What a header may say, and what is refused; values of blocks are compared in the integration tests.

use std::fs;

use super::*;

/// A file in the making: header, then zeros up to 32, then data.
#[derive(Clone)]
struct Made {
    version: u32,
    keys: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn key(name: &str, ty: u32, value: &[u8]) -> Vec<u8> {
    [&text(name), &ty.to_le_bytes()[..], value].concat()
}

fn array(ty: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [&ty.to_le_bytes()[..], &len.to_le_bytes(), elements].concat()
}

/// Extents are the innermost first, as in files.
fn tensor(name: &str, extents: &[u64], ty: u32, offset: u64) -> Vec<u8> {
    let extents_bytes: Vec<u8> = extents.iter().flat_map(|extent| extent.to_le_bytes()).collect();
    let axes = (extents.len() as u32).to_le_bytes();
    [&text(name), &axes[..], &extents_bytes, &ty.to_le_bytes(), &offset.to_le_bytes()].concat()
}

impl Made {
    fn new(keys: &[Vec<u8>], tensors: &[Vec<u8>], data: &[u8]) -> Made {
        Made { version: 3, keys: keys.to_vec(), tensors: tensors.to_vec(), data: data.to_vec() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.keys.len() as u64).to_le_bytes());
        bytes.extend(self.keys.concat());
        bytes.extend(self.tensors.concat());
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(&self.data);
        bytes
    }

    fn open(&self) -> Result<GgufFile> {
        open(&self.bytes())
    }

    fn refused(&self, what: &str) {
        refused(&self.bytes(), what);
    }
}

fn open(bytes: &[u8]) -> Result<GgufFile> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    fs::write(&path, bytes).unwrap();
    GgufFile::open(path)
}

fn refused(bytes: &[u8], what: &str) {
    let error = open(bytes).unwrap_err().to_string();
    assert!(error.contains(&format!("x.gguf {what}")), "{error}");
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn values_of_every_type_are_read() {
    let strings = [text("a"), text(""), text("é")].concat();
    let keys = [
        key("u8", 0, &[200]),
        key("i8", 1, &[0xFF]),
        key("u16", 2, &60000u16.to_le_bytes()),
        key("i16", 3, &(-2i16).to_le_bytes()),
        key("u32", 4, &u32::MAX.to_le_bytes()),
        key("i32", 5, &(-3i32).to_le_bytes()),
        key("f32", 6, &0.5f32.to_le_bytes()),
        key("bool", 7, &[1]),
        key("string", 8, &text("llama")),
        key("strings", 9, &array(8, 3, &strings)),
        key("numbers", 9, &array(5, 2, &[1, 0, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF])),
        key("bools", 9, &array(7, 2, &[0, 1])),
        key("none", 9, &array(6, 0, &[])),
        key("u64", 10, &u64::MAX.to_le_bytes()),
        key("i64", 11, &i64::MIN.to_le_bytes()),
        key("f64", 12, &0.25f64.to_le_bytes()),
    ];
    let file = Made::new(&keys, &[], &[]).open().unwrap();
    let at = |name: &str| &file.metadata()[name];
    let integers: Vec<_> =
        ["u8", "i8", "u16", "i16", "u32", "i32", "i64"].map(|name| at(name).as_i64()).into();
    let wanted = [200, -1, 60000, -2, 4294967295, -3, i64::MIN];
    assert_eq!(integers, wanted.map(Some));
    assert_eq!((at("u64").as_u64(), at("u64").as_i64()), (Some(u64::MAX), None));
    assert_eq!((at("f32").as_f64(), at("f64").as_f64()), (Some(0.5), Some(0.25)));
    assert_eq!((at("bool").as_bool(), at("string").as_str()), (Some(true), Some("llama")));
    let strings = at("strings").as_array().unwrap();
    assert_eq!(strings.strings().unwrap().collect::<Vec<_>>(), ["a", "", "é"]);
    assert!(strings.integers().is_none() && strings.floats().is_none());
    let numbers = at("numbers").as_array().unwrap();
    assert_eq!(numbers.integers().unwrap().collect::<Vec<_>>(), [1, -2]);
    let bools = at("bools").as_array().unwrap().values();
    assert_eq!(bools.map(|value| value.as_bool().unwrap()).collect::<Vec<_>>(), [false, true]);
    let none = at("none").as_array().unwrap();
    assert!(none.is_empty() && none.floats().unwrap().next().is_none());
    assert_eq!(format!("{:?}", at("numbers")), "Array([I32; 2])");
}

#[test]
fn shapes_are_row_major_and_values_lie_at_their_offsets() {
    let data = [floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), vec![0; 8], floats(&[7.0])].concat();
    let tensors = [tensor("w", &[3, 2], 0, 0), tensor("b", &[], 0, 32), tensor("e", &[0], 0, 64)];
    for version in [2, 3] {
        let made = Made { version, ..Made::new(&[], &tensors, &data) };
        let file = made.open().unwrap();
        assert_eq!((file.version(), file.tensors()["w"].shape.as_slice()), (version, &[2, 3][..]));
        assert_eq!(file.dequantized("w").unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(file.bytes("b").unwrap(), 7.0f32.to_le_bytes());
        assert_eq!(file.dequantized("e").unwrap(), [0.0; 0]);
        let error = file.bytes("x").unwrap_err().to_string();
        assert!(error.ends_with("x.gguf has no tensor x"), "{error}");
    }
}

#[test]
fn an_alignment_of_its_own_moves_the_data() {
    let keys = [key("general.alignment", 4, &8u32.to_le_bytes())];
    let tensors = [tensor("a", &[1], 0, 0), tensor("b", &[1], 0, 8)];
    let mut bytes = Made::new(&keys, &tensors, &[]).bytes();
    let header = 24 + keys.concat().len() + tensors.concat().len();
    bytes.truncate(header);
    bytes.resize(header.next_multiple_of(8), 0);
    bytes.extend(floats(&[1.0, 0.0, 2.0]));
    let file = open(&bytes).unwrap();
    assert_eq!(file.dequantized("a").unwrap(), [1.0]);
    assert_eq!(file.dequantized("b").unwrap(), [2.0]);
}

#[test]
fn every_cut_is_an_error() {
    let keys = [key("names", 9, &array(8, 1, &text("name"))), key("n", 4, &[1, 0, 0, 0])];
    let whole = Made::new(&keys, &[tensor("w", &[2], 0, 0)], &floats(&[1.0, 2.0])).bytes();
    open(&whole).unwrap();
    for len in 0..whole.len() {
        let error = open(&whole[..len]).unwrap_err().to_string();
        assert!(error.contains("cut off") || error.contains("no GGUF"), "{len}: {error}");
    }
}

#[test]
fn other_versions_are_refused_by_name() {
    let made = |version| Made { version, ..Made::new(&[], &[], &[]) };
    made(1).refused("is a GGUF file of version 1, which is not read: convert it anew");
    made(4).refused("is a GGUF file of version 4, versions 2 and 3 are read");
    made(3u32.swap_bytes()).refused("is a big-endian GGUF file, which is not read");
    refused(b"GGML", "is no GGUF file: it does not begin with GGUF");
    refused(b"", "is no GGUF file");
}

#[test]
fn hostile_metadata_is_refused() {
    let with = |key: Vec<u8>| Made::new(&[key], &[], &[]);
    let twice = key("n", 4, &[1, 0, 0, 0]);
    Made::new(&[twice.clone(), twice], &[], &[]).refused("has key n twice");
    with(key("n", 13, &[])).refused("is of type number 13, which there is not (key n)");
    let nested = array(9, 1, &array(0, 1, &[1]));
    with(key("n", 9, &nested)).refused("is an array of arrays, which is not read (key n)");
    with(key("n", 9, &array(6, u64::MAX, &[])))
        .refused("is cut off: it claims 18446744073709551615");
    with(key("n", 9, &array(8, 1 << 60, &[]))).refused("is cut off: it claims 1152921504606846976");
    let many = u64::MAX.to_le_bytes();
    with(key("n", 8, &many)).refused("is cut off: it claims 18446744073709551615 of what at most");
    with(key("n", 7, &[2])).refused("holds a bool that is 2, not 0 or 1 (key n)");
    with(key("n", 9, &array(7, 1, &[3]))).refused("holds a bool that is 3, not 0 or 1 (key n)");
    let bad = [&1u64.to_le_bytes()[..], &[0xFF]].concat();
    with(key("n", 8, &bad)).refused("holds text that is not UTF-8 (key n)");
    for count in [u64::MAX, 1 << 62, 1 << 17] {
        let mut bytes = Made::new(&[], &[], &[0; 64]).bytes();
        bytes[16..24].copy_from_slice(&count.to_le_bytes());
        refused(&bytes, &format!("is cut off: it claims {count}"));
    }
    let mut bytes = Made::new(&[], &[], &vec![0; 13 << 17]).bytes();
    bytes[16..24].copy_from_slice(&(1u64 << 17).to_le_bytes());
    refused(&bytes, "has 131072 keys of metadata, the most is 65536");
    let alignment = key("general.alignment", 4, &3u32.to_le_bytes());
    with(alignment).refused("has general.alignment of U32(3), not a power of two");
    let alignment = key("general.alignment", 8, &text("x"));
    with(alignment).refused("has general.alignment of String(\"x\"), not a power of two");
}

#[test]
fn hostile_tensors_are_refused() {
    let with = |tensors: &[Vec<u8>]| Made::new(&[], tensors, &[0; 64]);
    let (a, b) = (tensor("a", &[8], 0, 0), tensor("b", &[8], 0, 32));
    with(&[a.clone(), b.clone()]).open().unwrap();
    with(&[a.clone(), tensor("a", &[8], 0, 32)]).refused("has tensor a twice");
    with(&[a.clone(), tensor("b", &[16], 0, 0)]).refused("has tensors a and b in the same bytes");
    with(&[tensor("a", &[9], 0, 0), b]).refused("has tensors a and b in the same bytes");
    with(&[tensor("b", &[8], 0, 8)]).refused("has tensor b at 8, no multiple of 32");
    with(&[tensor("b", &[8], 0, 64)]).refused("is cut off: it has ");
    with(&[tensor("b", &[8], 0, u64::MAX - 31)]).refused("is cut off: it has ");
    with(&[tensor("b", &[1; 5], 0, 0)]).refused("has 5 axes, the most is 4 (tensor b)");
    with(&[tensor("b", &[33], 2, 0)])
        .refused("has rows of 33 elements, Q4_0 comes in blocks of 32");
    with(&[tensor("b", &[2, 16], 2, 0)]).refused("has rows of 2 elements, Q4_0 comes in blocks");
    with(&[tensor("b", &[256], 16, 0)]).refused("is of type IQ2_XXS, which is not read (tensor b)");
    with(&[tensor("b", &[256], 99, 0)]).refused("is of type number 99, which is not read");
    let huge = [u64::MAX, u64::MAX];
    with(&[tensor("b", &huge, 0, 0)]).refused("has shape [18446744073709551615, ");
    with(&[tensor("b", &[0, 1 << 63], 0, 0)]).refused("has shape [9223372036854775808, 0]");
    with(&[tensor("b", &[1 << 62], 0, 0)]).refused("has shape [4611686018427387904], larger");
}
