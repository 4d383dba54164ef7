//! Loops that the compiler must write out.

/// Runs the block with `$i` a constant, each of the numbers in turn. The compiler writes loops out by their size, which with many rows it finds
/// too large; what the number selects is then chosen while running.
macro_rules! written_out {
    ($i:ident in [$($n:literal)*] $block:block) => {
        $({
            const $i: usize = $n;
            $block
        })*
    };
}

pub(super) use written_out;
