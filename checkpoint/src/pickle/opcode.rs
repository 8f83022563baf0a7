//! The opcodes.

macro_rules! opcodes {
    ($($variant:ident = $byte:literal $name:literal,)*) => {
        /// One opcode.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Op { $($variant,)* }

        impl Op {
            /// All of them, for tests and messages.
            #[cfg(test)]
            pub(crate) const ALL: &[(u8, Self)] = &[$(($byte, Self::$variant),)*];

            /// The opcode of a byte.
            pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its name in `pickletools`.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

opcodes! {
    Mark = b'(' "MARK",
    Stop = b'.' "STOP",
    Pop = b'0' "POP",
    PopMark = b'1' "POP_MARK",
    Dup = b'2' "DUP",
    Float = b'F' "FLOAT",
    Int = b'I' "INT",
    BinInt = b'J' "BININT",
    BinInt1 = b'K' "BININT1",
    Long = b'L' "LONG",
    BinInt2 = b'M' "BININT2",
    None = b'N' "NONE",
    PersId = b'P' "PERSID",
    BinPersId = b'Q' "BINPERSID",
    Reduce = b'R' "REDUCE",
    String = b'S' "STRING",
    BinString = b'T' "BINSTRING",
    ShortBinString = b'U' "SHORT_BINSTRING",
    Unicode = b'V' "UNICODE",
    BinUnicode = b'X' "BINUNICODE",
    Append = b'a' "APPEND",
    Build = b'b' "BUILD",
    Global = b'c' "GLOBAL",
    Dict = b'd' "DICT",
    EmptyDict = b'}' "EMPTY_DICT",
    Appends = b'e' "APPENDS",
    Get = b'g' "GET",
    BinGet = b'h' "BINGET",
    Inst = b'i' "INST",
    LongBinGet = b'j' "LONG_BINGET",
    List = b'l' "LIST",
    EmptyList = b']' "EMPTY_LIST",
    Obj = b'o' "OBJ",
    Put = b'p' "PUT",
    BinPut = b'q' "BINPUT",
    LongBinPut = b'r' "LONG_BINPUT",
    SetItem = b's' "SETITEM",
    Tuple = b't' "TUPLE",
    EmptyTuple = b')' "EMPTY_TUPLE",
    SetItems = b'u' "SETITEMS",
    BinFloat = b'G' "BINFLOAT",
    BinBytes = b'B' "BINBYTES",
    ShortBinBytes = b'C' "SHORT_BINBYTES",
    Proto = 0x80 "PROTO",
    NewObj = 0x81 "NEWOBJ",
    Ext1 = 0x82 "EXT1",
    Ext2 = 0x83 "EXT2",
    Ext4 = 0x84 "EXT4",
    Tuple1 = 0x85 "TUPLE1",
    Tuple2 = 0x86 "TUPLE2",
    Tuple3 = 0x87 "TUPLE3",
    NewTrue = 0x88 "NEWTRUE",
    NewFalse = 0x89 "NEWFALSE",
    Long1 = 0x8a "LONG1",
    Long4 = 0x8b "LONG4",
    ShortBinUnicode = 0x8c "SHORT_BINUNICODE",
    BinUnicode8 = 0x8d "BINUNICODE8",
    BinBytes8 = 0x8e "BINBYTES8",
    EmptySet = 0x8f "EMPTY_SET",
    AddItems = 0x90 "ADDITEMS",
    FrozenSet = 0x91 "FROZENSET",
    NewObjEx = 0x92 "NEWOBJ_EX",
    StackGlobal = 0x93 "STACK_GLOBAL",
    Memoize = 0x94 "MEMOIZE",
    Frame = 0x95 "FRAME",
    ByteArray8 = 0x96 "BYTEARRAY8",
    NextBuffer = 0x97 "NEXT_BUFFER",
    ReadOnlyBuffer = 0x98 "READONLY_BUFFER",
}

#[cfg(test)]
mod tests {
    use super::Op;

    #[test]
    fn there_are_68_and_each_leads_back() {
        assert_eq!(Op::ALL.len(), 68);
        for &(byte, op) in Op::ALL {
            assert_eq!(Op::from_byte(byte), Some(op));
        }
        let known = (0..=u8::MAX)
            .filter(|&byte| Op::from_byte(byte).is_some())
            .count();
        assert_eq!(known, 68);
    }
}
