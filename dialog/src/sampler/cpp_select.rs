//! Selection and partial sorting in the order in which LLVM's C++ library leaves the elements.
//!
//! libGenie's draw depends on the order of the tokens it keeps, also of those that it did not sort and of equal ones, so the
//! sequence of comparisons and swaps is part of what is followed. Nothing else should use these: the standard library's
//! functions are faster and better.
//!
//! *Source*: the order of kept tokens was measured on libGenie 1.21, position by position, with seeds whose draw falls on
//! each; these steps give all of them (dialog/tests/sampler_order.rs).

/// Moves the element that belongs at `nth` there: none behind it goes before it, and it goes before none in front of it.
pub(super) fn nth_element<T: Copy>(items: &mut [T], nth: usize, before: impl Fn(&T, &T) -> bool + Copy) {
    let mut window = (0, items.len());
    while nth < window.1 {
        let (first, end) = window;
        match end - first {
            0 | 1 => return,
            2 | 3 => {
                sort_few(items, first, end, before);
                return;
            }
            4..=7 => {
                select_each(&mut items[first..end], before);
                return;
            }
            _ => match divide(items, window, nth, before) {
                Some(next) => window = next,
                None => return,
            },
        }
    }
}

/// Divides a window by the median of its first, middle and last element. The window to go on with, or `None` when all is in place.
fn divide<T: Copy>(
    items: &mut [T],
    (first, end): (usize, usize),
    nth: usize,
    before: impl Fn(&T, &T) -> bool + Copy,
) -> Option<(usize, usize)> {
    let mut pivot = first + (end - first) / 2;
    let mut n_swaps = sort_three(items, [first, pivot, end - 1], before);
    let (mut left, mut right) = (first, end - 1);
    if !before(&items[first], &items[pivot]) {
        // The first equals the pivot: one that goes before it is brought to the front.
        match (first + 1..right).rev().find(|&at| before(&items[at], &items[pivot])) {
            Some(at) => {
                items.swap(first, at);
                right = at;
                n_swaps += 1;
            }
            None => return divide_equal(items, (first, end), nth, before),
        }
    }
    left += 1;
    if left < right {
        loop {
            while before(&items[left], &items[pivot]) {
                left += 1;
            }
            right -= 1;
            while !before(&items[right], &items[pivot]) {
                right -= 1;
            }
            if left >= right {
                break;
            }
            items.swap(left, right);
            n_swaps += 1;
            if pivot == left {
                pivot = right;
            }
            left += 1;
        }
    }
    if left != pivot && before(&items[pivot], &items[left]) {
        items.swap(left, pivot);
        n_swaps += 1;
    }
    if nth == left {
        return None;
    }
    let side = if nth < left { (first, left) } else { (left, end) };
    if n_swaps == 0 && items[side.0..side.1].windows(2).all(|pair| !before(&pair[1], &pair[0])) {
        return None;
    }
    Some(if nth < left { (first, left) } else { (left + 1, end) })
}

/// No element goes before the first: those that equal it move to the front, the others behind them.
fn divide_equal<T: Copy>(
    items: &mut [T],
    (first, end): (usize, usize),
    nth: usize,
    before: impl Fn(&T, &T) -> bool,
) -> Option<(usize, usize)> {
    let (mut left, mut right) = (first + 1, end - 1);
    if !before(&items[first], &items[right]) {
        let larger = (left..right).find(|&at| before(&items[first], &items[at]))?;
        items.swap(larger, right);
        left = larger + 1;
    }
    if left == right {
        return None;
    }
    loop {
        while !before(&items[first], &items[left]) {
            left += 1;
        }
        right -= 1;
        while before(&items[first], &items[right]) {
            right -= 1;
        }
        if left >= right {
            break;
        }
        items.swap(left, right);
        left += 1;
    }
    (nth >= left).then_some((left, end))
}

/// Two or three elements of a window.
fn sort_few<T>(items: &mut [T], first: usize, end: usize, before: impl Fn(&T, &T) -> bool) {
    if end - first == 3 {
        sort_three(items, [first, first + 1, end - 1], before);
    } else if before(&items[end - 1], &items[first]) {
        items.swap(first, end - 1);
    }
}

/// Sorts three places with the fewest swaps; how many they were.
fn sort_three<T>(items: &mut [T], [a, b, c]: [usize; 3], before: impl Fn(&T, &T) -> bool) -> usize {
    match (before(&items[b], &items[a]), before(&items[c], &items[b])) {
        (false, false) => 0,
        (true, true) => {
            items.swap(a, c);
            1
        }
        (false, true) => {
            items.swap(b, c);
            if !before(&items[b], &items[a]) {
                return 1;
            }
            items.swap(a, b);
            2
        }
        (true, false) => {
            items.swap(a, b);
            if !before(&items[c], &items[b]) {
                return 1;
            }
            items.swap(b, c);
            2
        }
    }
}

/// Brings to each place the first of those that belong there.
fn select_each<T>(items: &mut [T], before: impl Fn(&T, &T) -> bool) {
    for place in 0..items.len() {
        let best =
            (place + 1..items.len()).fold(place, |best, at| if before(&items[at], &items[best]) { at } else { best });
        if best != place {
            items.swap(place, best);
        }
    }
}

/// Sorts the `n` elements that go first into `items[..n]`, by a heap with the last of them on top.
pub(super) fn partial_sort<T: Copy>(items: &mut [T], n: usize, before: impl Fn(&T, &T) -> bool + Copy) {
    let n = n.min(items.len());
    if n == 0 {
        return;
    }
    let (heap, rest) = items.split_at_mut(n);
    for place in (0..n / 2).rev() {
        sink(heap, place, before);
    }
    for one in rest {
        if before(one, &heap[0]) {
            std::mem::swap(one, &mut heap[0]);
            sink(heap, 0, before);
        }
    }
    for end in (1..n).rev() {
        heap.swap(0, end);
        sink(&mut heap[..end], 0, before);
    }
}

/// Moves the element at `place` below its children until none of them goes behind it.
fn sink<T: Copy>(heap: &mut [T], mut place: usize, before: impl Fn(&T, &T) -> bool) {
    let sinking = heap[place];
    loop {
        let mut child = 2 * place + 1;
        if child >= heap.len() {
            break;
        }
        if child + 1 < heap.len() && before(&heap[child], &heap[child + 1]) {
            child += 1;
        }
        if before(&heap[child], &sinking) {
            break;
        }
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = sinking;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_select_what_a_sort_does(values in prop::collection::vec(0..60u32, 1..300), at in 0..300usize) {
            let nth = at % values.len();
            let mut sorted = values.clone();
            sorted.sort_by(|a, b| b.cmp(a));
            let mut selected = values.clone();
            nth_element(&mut selected, nth, |a, b| a > b);
            prop_assert_eq!(selected[nth], sorted[nth]);
            prop_assert!(selected[..nth].iter().all(|x| *x >= sorted[nth]));
            prop_assert!(selected[nth..].iter().all(|x| *x <= sorted[nth]));
            selected.sort_by(|a, b| b.cmp(a));
            prop_assert_eq!(&selected, &sorted, "nothing is lost");
            let mut first = values.clone();
            partial_sort(&mut first, nth + 1, |a, b| a > b);
            prop_assert_eq!(&first[..=nth], &sorted[..=nth]);
        }
    }
}
