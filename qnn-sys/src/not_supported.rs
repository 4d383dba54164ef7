//! What the empty slots of a table call: one function for each number of arguments; the slot's own type fills in which.

/// `QNN_COMMON_ERROR_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: u64 = 1000;

macro_rules! stubs {
    ($($name:ident($($arg:ident: $ty:ident),*);)*) => {
        $(pub(crate) unsafe extern "C" fn $name<$($ty),*>($($arg: $ty),*) -> u64 {
            $(let _ = $arg;)*
            NOT_SUPPORTED
        })*
    };
}

stubs! {
    args0();
    args1(a: A);
    args2(a: A, b: B);
    args3(a: A, b: B, c: C);
    args4(a: A, b: B, c: C, d: D);
    args5(a: A, b: B, c: C, d: D, e: E);
    args6(a: A, b: B, c: C, d: D, e: E, f: F);
    args7(a: A, b: B, c: C, d: D, e: E, f: F, g: G);
    args8(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H);
    args9(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H, i: I);
}
