//! The pickle of one tensor: written as `torch.save` writes it, read by an interpreter that knows these opcodes alone.
//!
//! Nothing is ever called or imported: three globals are recognised by name, any other ends the reading. Opcodes and
//! their encoding: Python's `pickletools`; the arguments: PyTorch's `torch/_utils.py`, `_rebuild_tensor_v2`.

use super::{Array, Dtype, STORAGES};
use std::collections::BTreeMap;

/// What a pickle says of its tensor; sizes, strides and offset are in elements.
#[derive(Debug, PartialEq)]
pub(super) struct Tensor {
    pub(super) dtype: Dtype,
    pub(super) storage: String,
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

const PROTO: u8 = 0x80;
const GLOBAL: u8 = b'c';
const BINPUT: u8 = b'q';
const LONG_BINPUT: u8 = b'r';
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';
const MARK: u8 = b'(';
const BINUNICODE: u8 = b'X';
const BININT: u8 = b'J';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const LONG1: u8 = 0x8a;
const TUPLE: u8 = b't';
const EMPTY_TUPLE: u8 = b')';
const TUPLE1: u8 = 0x85;
const TUPLE3: u8 = 0x87;
const NEWTRUE: u8 = 0x88;
const NEWFALSE: u8 = 0x89;
const BINPERSID: u8 = b'Q';
const REDUCE: u8 = b'R';
const STOP: u8 = b'.';

const REBUILD: &str = "torch._utils _rebuild_tensor_v2";
const ORDERED_DICT: &str = "collections OrderedDict";
/// More steps or stack than any tensor's pickle needs.
const MAX_STEPS: usize = 1024;

/// The pickle of a dense tensor whose values lie in the record `data/0`.
pub(super) fn write(array: &Array) -> Vec<u8> {
    let class = STORAGES.iter().find(|(dtype, _)| *dtype == array.dtype).map_or("", |(_, class)| class);
    let mut out = Writer { bytes: vec![PROTO, 2], memo: 0 };
    out.global("torch._utils", "_rebuild_tensor_v2").push(MARK).push(MARK);
    out.text("storage").global("torch", class).text("0").text("cpu");
    out.int(array.bytes.len() / array.dtype.size()).push(TUPLE).put().push(BINPERSID);
    out.int(0).tuple(&array.shape).tuple(&row_major(&array.shape)).push(NEWFALSE);
    out.global("collections", "OrderedDict").push(EMPTY_TUPLE).push(REDUCE).put();
    out.push(TUPLE).put().push(REDUCE).put().push(STOP);
    out.bytes
}

fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    strides
}

struct Writer {
    bytes: Vec<u8>,
    memo: u8,
}

impl Writer {
    fn push(&mut self, opcode: u8) -> &mut Self {
        self.bytes.push(opcode);
        self
    }

    /// Remembers the top of the stack, as Python's pickler does after each value but numbers.
    fn put(&mut self) -> &mut Self {
        self.bytes.extend([BINPUT, self.memo]);
        self.memo += 1;
        self
    }

    fn global(&mut self, module: &str, name: &str) -> &mut Self {
        self.bytes.push(GLOBAL);
        self.bytes.extend(format!("{module}\n{name}\n").bytes());
        self.put()
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.bytes.push(BINUNICODE);
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.bytes());
        self.put()
    }

    fn int(&mut self, value: usize) -> &mut Self {
        match value {
            0..=0xff => self.bytes.extend([BININT1, value as u8]),
            0x100..=0xffff => {
                self.bytes.push(BININT2);
                self.bytes.extend((value as u16).to_le_bytes());
            }
            0x1_0000..=0x7fff_ffff => {
                self.bytes.push(BININT);
                self.bytes.extend((value as i32).to_le_bytes());
            }
            _ => {
                // Eight bytes of a number that has no sign bit, and a ninth against the case that it has.
                self.bytes.extend([LONG1, 9]);
                self.bytes.extend((value as u64).to_le_bytes());
                self.bytes.push(0);
            }
        }
        self
    }

    fn tuple(&mut self, values: &[usize]) -> &mut Self {
        if values.is_empty() {
            return self.push(EMPTY_TUPLE);
        }
        if values.len() > 3 {
            self.push(MARK);
        }
        for &value in values {
            self.int(value);
        }
        let opcode = if values.len() > 3 { TUPLE } else { TUPLE1 + values.len() as u8 - 1 };
        self.push(opcode).put()
    }
}

/// A value on the interpreter's stack.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Mark,
    Int(u64),
    Bool,
    Text(String),
    Global(String),
    Tuple(Vec<Value>),
    Storage { dtype: Dtype, key: String },
    EmptyDict,
    Tensor,
}

/// Reads the pickle of one tensor; the error says what else it holds.
pub(super) fn read(pickle: &[u8]) -> Result<Tensor, String> {
    let mut machine = Machine { rest: pickle, stack: Vec::new(), memo: BTreeMap::new(), tensor: None };
    for _ in 0..MAX_STEPS {
        if machine.step()? {
            let whole = machine.stack == [Value::Tensor] && machine.rest.is_empty();
            return machine.tensor.filter(|_| whole).ok_or_else(|| "its pickle is not that of one tensor".into());
        }
    }
    Err("its pickle is too long for that of one tensor".into())
}

struct Machine<'a> {
    rest: &'a [u8],
    stack: Vec<Value>,
    memo: BTreeMap<u32, Value>,
    tensor: Option<Tensor>,
}

impl<'a> Machine<'a> {
    /// Runs one opcode; true at the end.
    fn step(&mut self) -> Result<bool, String> {
        let opcode = self.take(1)?[0];
        match opcode {
            PROTO => drop(self.take(1)?),
            GLOBAL => self.global()?,
            BINPUT | LONG_BINPUT => self.remember(opcode == LONG_BINPUT)?,
            BINGET | LONG_BINGET => self.recall(opcode == LONG_BINGET)?,
            MARK => self.stack.push(Value::Mark),
            BINUNICODE => self.text()?,
            BININT | BININT1 | BININT2 | LONG1 => self.int(opcode)?,
            TUPLE => self.tuple_to_mark()?,
            EMPTY_TUPLE => self.stack.push(Value::Tuple(Vec::new())),
            TUPLE1..=TUPLE3 => self.tuple_of(usize::from(opcode - TUPLE1) + 1)?,
            NEWTRUE | NEWFALSE => self.stack.push(Value::Bool),
            BINPERSID => self.storage()?,
            REDUCE => self.reduce()?,
            STOP => return Ok(true),
            other => return Err(format!("its pickle has opcode 0x{other:02x}, which no bare tensor needs")),
        }
        Ok(false)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("its pickle is cut")?;
        self.rest = rest;
        Ok(taken)
    }

    fn pop(&mut self) -> Result<Value, String> {
        self.stack.pop().ok_or_else(|| "its pickle takes from an empty stack".into())
    }

    fn line(&mut self) -> Result<&'a str, String> {
        let end = self.rest.iter().position(|&byte| byte == b'\n').ok_or("its pickle is cut")?;
        let line = self.take(end + 1)?;
        std::str::from_utf8(&line[..end]).map_err(|_| "its pickle names something that is no text".into())
    }

    fn global(&mut self) -> Result<(), String> {
        let name = format!("{} {}", self.line()?, self.line()?);
        let known = name == REBUILD || name == ORDERED_DICT || storage_dtype(&name).is_some();
        if !known {
            return Err(format!("its pickle asks for `{}`, which no bare tensor needs", name.escape_default()));
        }
        self.stack.push(Value::Global(name));
        Ok(())
    }

    fn index(&mut self, long: bool) -> Result<u32, String> {
        let bytes = self.take(if long { 4 } else { 1 })?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte)))
    }

    fn remember(&mut self, long: bool) -> Result<(), String> {
        let index = self.index(long)?;
        let top = self.stack.last().cloned().ok_or("its pickle remembers nothing")?;
        self.memo.insert(index, top);
        Ok(())
    }

    fn recall(&mut self, long: bool) -> Result<(), String> {
        let index = self.index(long)?;
        let value = self.memo.get(&index).cloned().ok_or("its pickle recalls what it never kept")?;
        // Nested tuples of recalled tuples would grow without bound; a tensor's pickle recalls no tuple of tuples.
        let flat = match &value {
            Value::Tuple(items) => items.iter().all(|item| matches!(item, Value::Int(_))),
            _ => true,
        };
        flat.then(|| self.stack.push(value)).ok_or_else(|| "its pickle recalls more than a tensor's does".into())
    }

    fn text(&mut self) -> Result<(), String> {
        let length = self.index(true)? as usize;
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| "its pickle holds a text that is not UTF-8")?;
        self.stack.push(Value::Text(text.to_owned()));
        Ok(())
    }

    /// A number that is not negative: sizes, strides and offsets are none other.
    fn int(&mut self, opcode: u8) -> Result<(), String> {
        let length = match opcode {
            BININT1 => 1,
            BININT2 => 2,
            BININT => 4,
            _ => usize::from(self.take(1)?[0]),
        };
        let bytes = self.take(length)?;
        let signed = matches!(opcode, BININT | LONG1);
        let negative = signed && bytes.last().is_some_and(|&byte| byte >= 0x80);
        let fits = bytes.iter().skip(8).all(|&byte| byte == 0);
        if negative || !fits {
            return Err("its pickle has a size that is negative or too large".into());
        }
        let value = bytes.iter().take(8).rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        self.stack.push(Value::Int(value));
        Ok(())
    }

    fn tuple_to_mark(&mut self) -> Result<(), String> {
        let mark = self.stack.iter().rposition(|value| *value == Value::Mark).ok_or("its pickle misses a mark")?;
        let items = self.stack.split_off(mark + 1);
        self.stack.pop();
        self.stack.push(Value::Tuple(items));
        Ok(())
    }

    fn tuple_of(&mut self, count: usize) -> Result<(), String> {
        let start = self.stack.len().checked_sub(count).ok_or("its pickle takes from an empty stack")?;
        let items = self.stack.split_off(start);
        self.stack.push(Value::Tuple(items));
        Ok(())
    }

    /// `("storage", class, key, location, elements)`.
    fn storage(&mut self) -> Result<(), String> {
        let Value::Tuple(items) = self.pop()? else { return Err("its storage is described by no tuple".into()) };
        let [Value::Text(kind), Value::Global(class), Value::Text(key), Value::Text(_), Value::Int(_)] = &items[..]
        else {
            return Err("its storage is described in another way than torch does".into());
        };
        let dtype = storage_dtype(class).filter(|_| kind == "storage").ok_or("its storage is of no known class")?;
        self.stack.push(Value::Storage { dtype, key: key.clone() });
        Ok(())
    }

    fn reduce(&mut self) -> Result<(), String> {
        let (arguments, callee) = (self.pop()?, self.pop()?);
        let (Value::Tuple(arguments), Value::Global(callee)) = (arguments, callee) else {
            return Err("its pickle calls what is no function".into());
        };
        let result = match (callee.as_str(), arguments.as_slice()) {
            (ORDERED_DICT, []) => Value::EmptyDict,
            (REBUILD, [storage, offset, shape, strides, Value::Bool, Value::EmptyDict]) if self.tensor.is_none() => {
                self.tensor = Some(tensor(storage, offset, shape, strides)?);
                Value::Tensor
            }
            _ => return Err(format!("its pickle calls `{callee}` in another way than torch does")),
        };
        self.stack.push(result);
        Ok(())
    }
}

fn tensor(storage: &Value, offset: &Value, shape: &Value, strides: &Value) -> Result<Tensor, String> {
    let (Value::Storage { dtype, key }, Some(shape), Some(strides)) = (storage, sizes(shape), sizes(strides)) else {
        return Err("its tensor is described in another way than torch does".into());
    };
    let offset = match offset {
        Value::Int(offset) => usize::try_from(*offset).ok(),
        _ => None,
    };
    let offset =
        offset.filter(|_| shape.len() == strides.len()).ok_or("its tensor has sizes that do not fit together")?;
    Ok(Tensor { dtype: *dtype, storage: key.clone(), offset, shape, strides })
}

fn sizes(value: &Value) -> Option<Vec<usize>> {
    let Value::Tuple(items) = value else { return None };
    let size = |item: &Value| match item {
        Value::Int(size) => usize::try_from(*size).ok(),
        _ => None,
    };
    items.iter().map(size).collect()
}

fn storage_dtype(name: &str) -> Option<Dtype> {
    let class = name.strip_prefix("torch ")?;
    STORAGES.iter().find(|(_, known)| *known == class).map(|(dtype, _)| *dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(shape: &[usize]) -> Array {
        let bytes = shape.iter().product::<usize>() * 2;
        Array { dtype: Dtype::Bf16, shape: shape.to_vec(), bytes: vec![0; bytes] }
    }

    #[test]
    fn what_is_written_is_read_for_every_number_of_axes_and_size_of_number() {
        for shape in [&[][..], &[5], &[2, 3], &[4, 8, 300], &[16, 1, 70_000, 2], &[0, 3], &[1, 1, 1, 1, 1]] {
            let tensor = read(&write(&array(shape))).unwrap();
            assert_eq!((tensor.shape.as_slice(), tensor.offset), (shape, 0));
            assert_eq!(tensor.strides, row_major(shape));
            assert_eq!((tensor.dtype, tensor.storage.as_str()), (Dtype::Bf16, "0"));
        }
    }

    #[test]
    fn a_global_that_no_tensor_needs_ends_the_reading() {
        let evil = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.";
        assert_eq!(read(evil), Err("its pickle asks for `os system`, which no bare tensor needs".into()));
        let state = b"\x80\x02}q\x00.";
        assert!(read(state).unwrap_err().contains("opcode 0x7d"));
    }

    #[test]
    fn no_cut_or_flipped_pickle_panics() {
        let pickle = write(&array(&[4, 8, 300]));
        for length in 0..pickle.len() {
            assert!(read(&pickle[..length]).is_err(), "{length}");
        }
        for at in 0..pickle.len() {
            for bit in 0..8 {
                let mut flipped = pickle.clone();
                flipped[at] ^= 1 << bit;
                let _ = read(&flipped);
            }
        }
    }

    #[test]
    fn a_negative_stride_is_refused() {
        let mut pickle = write(&array(&[70_000]));
        let at = pickle.windows(4).position(|window| window == 70_000i32.to_le_bytes()).unwrap();
        pickle[at + 3] = 0xff;
        assert!(read(&pickle).unwrap_err().contains("negative"));
    }
}
