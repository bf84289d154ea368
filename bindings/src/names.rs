//! All names of the driver API, as sorted lists made at compile time.
//!
//! Nothing is looked up in a driver here: a name in these lists may be missing in the driver at hand.

macro_rules! typed_names {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        /// Names with a signature, sorted bytewise.
        pub const TYPED: &[&str] = &[$(stringify!($name)),*];
    };
}
crate::driver_api!(typed_names);

macro_rules! untyped_names {
    ($($name:ident;)*) => {
        /// Names that a driver exports and no header that we read declares, sorted bytewise.
        pub const UNTYPED: &[&str] = &[$(stringify!($name)),*];
    };
}
crate::driver_api_untyped!(untyped_names);

const COUNT: usize = TYPED.len() + UNTYPED.len();
static MERGED: [&str; COUNT] = merge(TYPED, UNTYPED);

/// Every name of the driver API, sorted bytewise, so that a binary search finds it.
pub static NAMES: &[&str] = &MERGED;

const fn merge(left: &[&'static str], right: &[&'static str]) -> [&'static str; COUNT] {
    let mut merged = [""; COUNT];
    let (mut from_left, mut from_right) = (0, 0);
    while from_left + from_right < COUNT {
        let take_left = from_right == right.len()
            || (from_left < left.len()
                && is_before(left[from_left].as_bytes(), right[from_right].as_bytes()));
        let position = from_left + from_right;
        if take_left {
            merged[position] = left[from_left];
            from_left += 1;
        } else {
            merged[position] = right[from_right];
            from_right += 1;
        }
    }
    merged
}

const fn is_before(left: &[u8], right: &[u8]) -> bool {
    let mut position = 0;
    while position < left.len() && position < right.len() {
        if left[position] != right[position] {
            return left[position] < right[position];
        }
        position += 1;
    }
    left.len() < right.len()
}
