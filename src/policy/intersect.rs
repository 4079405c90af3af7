//! What several lists of grants have in common.

/// What lists have in common: of each two lists, the entries of one that are within an entry of the other. Empty if there
/// is no list.
pub(super) fn intersection<T: Clone + PartialEq>(
    lists: impl IntoIterator<Item = Vec<T>>,
    within: impl Fn(&T, &T) -> bool,
) -> Vec<T> {
    let kept = |ours: &[T], theirs: &[T]| -> Vec<T> {
        let kept = ours.iter().filter(|one| theirs.iter().any(|other| within(one, other)));
        kept.cloned().collect()
    };
    let both = |ours: Vec<T>, theirs: Vec<T>| {
        let mut both = kept(&ours, &theirs);
        for one in kept(&theirs, &ours) {
            if !both.contains(&one) {
                both.push(one);
            }
        }
        both
    };
    lists.into_iter().reduce(both).unwrap_or_default()
}
