//! An ordered map of which a copy costs nothing: what was not changed since, both have in common.
//!
//! **Problem.** A snapshot is of a store that goes on changing while it is written; a copy of a million elections takes too long, and as much memory again. **Insight.** A B-tree changes
//! only the nodes on the way to what is changed. With its nodes behind [`Arc`], a copy is one more owner of the root, and a change makes its own copy of those few nodes that have
//! another owner. If nobody else has any, they are changed in place.
//!
//! So whatever is large goes behind an [`Arc`] itself: where a leaf is copied, all of its values are cloned.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;
use core::ops::Bound;
use core::slice;

/// A node with more is split. More make a node's copy dear, fewer the way to it long.
const ENTRIES_MAX: usize = 64;
/// A node with fewer is joined with the one beside it ...
const ENTRIES_MIN: usize = ENTRIES_MAX / 4;
/// ... if both have no more than this together. Well below what is split, so that one who comes and goes does not split and join each time.
const JOINED_MAX: usize = ENTRIES_MAX * 3 / 4;

/// So many entries are looked at one after the other, which lets the processor look ahead: keys are far away in memory.
const LOOKED_THROUGH: usize = 16;

/// An ordered map.
pub(crate) struct Tree<K, V> {
    root: Arc<Node<K, V>>,
    len: usize,
}

#[derive(Clone)]
enum Node<K, V> {
    Leaf(Vec<(K, V)>),
    /// Each with a key that is no greater than those below it, and greater than those before. None of them is empty.
    Branch(Vec<Child<K, V>>),
}

type Child<K, V> = (K, Arc<Node<K, V>>);

impl<K, V> Tree<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it, in order.
    pub(crate) fn iter(&self) -> Iter<'_, K, V> {
        let mut iter = Iter { leaf: [].iter(), branches: Vec::new() };
        iter.descend(&self.root);
        iter
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn first(&self) -> Option<(&K, &V)> {
        let mut node = &self.root;
        loop {
            match &**node {
                Node::Leaf(entries) => return entries.first().map(|(key, value)| (key, value)),
                Node::Branch(children) => node = &children.first()?.1,
            }
        }
    }

    pub(crate) fn last(&self) -> Option<(&K, &V)> {
        let mut node = &self.root;
        loop {
            match &**node {
                Node::Leaf(entries) => return entries.last().map(|(key, value)| (key, value)),
                Node::Branch(children) => node = &children.last()?.1,
            }
        }
    }
}

impl<K: Ord, V> Tree<K, V> {
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut node = &self.root;
        loop {
            match &**node {
                Node::Leaf(entries) => return entries.get(search(entries, key).ok()?).map(|(_, value)| value),
                Node::Branch(children) => node = &children.get(below(children, key)?)?.1,
            }
        }
    }

    pub(crate) fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// What comes from there on, in order.
    pub(crate) fn from<Q: Ord + ?Sized>(&self, start: Bound<&Q>) -> Iter<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let key = match start {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => return self.iter(),
        };
        let mut iter = Iter { leaf: [].iter(), branches: Vec::new() };
        let mut node = &self.root;
        loop {
            match &**node {
                Node::Leaf(entries) => {
                    let at = match (search(entries, key), start) {
                        (Ok(at), Bound::Excluded(_)) => at + 1,
                        (Ok(at) | Err(at), _) => at,
                    };
                    iter.leaf = entries[at..].iter();
                    return iter;
                }
                Node::Branch(children) => {
                    let at = below(children, key).unwrap_or(0);
                    iter.branches.push(children[at + 1..].iter());
                    node = &children[at].1;
                }
            }
        }
    }
}

impl<K: Ord + Clone, V: Clone> Tree<K, V> {
    /// With the key as it is here.
    pub(crate) fn find_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(&K, &mut V)>
    where
        K: Borrow<Q>,
    {
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = search(entries, key).ok()?;
                    let (key, value) = &mut entries[at];
                    return Some((key, value));
                }
                Node::Branch(children) => {
                    let at = below(children, key)?;
                    node = Arc::make_mut(&mut children[at].1);
                }
            }
        }
    }

    /// Answers what was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (before, behind) = Arc::make_mut(&mut self.root).insert(key, value);
        if let Some(behind) = behind {
            // The smallest that was ever below it, which may be gone: no greater than what its own first child has.
            let first = match &*self.root {
                Node::Leaf(entries) => entries[0].0.clone(),
                Node::Branch(children) => children[0].0.clone(),
            };
            let children = [(first, self.root.clone()), behind];
            self.root = Arc::new(Node::Branch(children.into()));
        }
        self.len += usize::from(before.is_none());
        before
    }

    /// Answers what was there.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let removed = Arc::make_mut(&mut self.root).remove(key)?;
        self.len -= 1;
        while let Node::Branch(children) = &*self.root
            && let [(_, only)] = &children[..]
        {
            self.root = only.clone();
        }
        Some(removed)
    }

    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        let key = self.first()?.0.clone();
        self.remove(&key)
    }
}

impl<K: Ord + Clone, V: Clone> Node<K, V> {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Branch(children) => children.len(),
        }
    }

    /// Answers what was there, and the node that now stands behind this one, if it was split.
    fn insert(&mut self, key: K, value: V) -> (Option<V>, Option<Child<K, V>>) {
        match self {
            Node::Leaf(entries) => match search(entries, &key) {
                Ok(at) => (Some(core::mem::replace(&mut entries[at].1, value)), None),
                Err(at) => {
                    let behind = insert_at(entries, at, (key, value));
                    (None, behind.map(|it| (it[0].0.clone(), Arc::new(Node::Leaf(it)))))
                }
            },
            Node::Branch(children) => {
                let at = below(children, &key).unwrap_or_else(|| {
                    children[0].0 = key.clone();
                    0
                });
                let (before, split) = Arc::make_mut(&mut children[at].1).insert(key, value);
                let behind = split.and_then(|it| insert_at(children, at + 1, it));
                (before, behind.map(|it| (it[0].0.clone(), Arc::new(Node::Branch(it)))))
            }
        }
    }

    fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        match self {
            Node::Leaf(entries) => {
                let at = search(entries, key).ok()?;
                Some(entries.remove(at))
            }
            Node::Branch(children) => {
                let at = below(children, key)?;
                let child = Arc::make_mut(&mut children[at].1);
                let removed = child.remove(key)?;
                match child.len() {
                    0 => drop(children.remove(at)),
                    few if few < ENTRIES_MIN => join(children, at),
                    _ => {}
                }
                Some(removed)
            }
        }
    }
}

/// Where the key is among the entries, or would be.
fn search<K: Borrow<Q>, V, Q: Ord + ?Sized>(entries: &[(K, V)], key: &Q) -> Result<usize, usize> {
    let (mut from, mut to) = (0, entries.len());
    while to - from > LOOKED_THROUGH {
        let at = from.midpoint(to);
        if entries[at].0.borrow() <= key {
            from = at;
        } else {
            to = at;
        }
    }
    for (at, entry) in (from..to).zip(&entries[from..to]) {
        match entry.0.borrow().cmp(key) {
            Ordering::Less => {}
            Ordering::Equal => return Ok(at),
            Ordering::Greater => return Err(at),
        }
    }
    Err(to)
}

/// The child below which the key is, if anywhere. `None`: it is smaller than all.
fn below<K: Borrow<Q>, V, Q: Ord + ?Sized>(children: &[Child<K, V>], key: &Q) -> Option<usize> {
    match search(children, key) {
        Ok(at) => Some(at),
        Err(at) => at.checked_sub(1),
    }
}

/// Answers the part that has to go to a node behind, if there are too many.
fn insert_at<T>(entries: &mut Vec<T>, at: usize, entry: T) -> Option<Vec<T>> {
    if entries.len() == entries.capacity() {
        // To double would leave as much room unused as used.
        entries.reserve_exact(entries.len().div_ceil(4).max(1));
    }
    entries.insert(at, entry);
    let len = entries.len();
    // What comes in order leaves full nodes behind.
    let split = (len > ENTRIES_MAX).then(|| entries.split_off(if at + 1 == len { at } else { len / 2 }));
    if split.is_some() {
        entries.shrink_to_fit();
    }
    split
}

/// Joins a child that has become small with the one beside it, if they fit.
fn join<K: Ord + Clone, V: Clone>(children: &mut Vec<Child<K, V>>, at: usize) {
    let at = if at + 1 < children.len() { at } else { at.saturating_sub(1) };
    let [left, right, ..] = &mut children[at..] else { return };
    if left.1.len() + right.1.len() > JOINED_MAX {
        return;
    }
    match (Arc::make_mut(&mut left.1), Arc::make_mut(&mut right.1)) {
        (Node::Leaf(left), Node::Leaf(right)) => left.append(right),
        (Node::Branch(left), Node::Branch(right)) => left.append(right),
        (Node::Leaf(_), Node::Branch(_)) | (Node::Branch(_), Node::Leaf(_)) => unreachable!("all leaves are equally deep"),
    }
    children.remove(at + 1);
}

impl<K, V> Clone for Tree<K, V> {
    fn clone(&self) -> Tree<K, V> {
        Tree { root: self.root.clone(), len: self.len }
    }
}

impl<K, V> Default for Tree<K, V> {
    fn default() -> Tree<K, V> {
        Tree { root: Arc::new(Node::Leaf(Vec::new())), len: 0 }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Tree<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for Tree<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Tree<K, V> {
        let mut tree = Tree::default();
        for (key, value) in entries {
            tree.insert(key, value);
        }
        tree
    }
}

/// Through a tree in order.
pub(crate) struct Iter<'a, K, V> {
    leaf: slice::Iter<'a, (K, V)>,
    /// What is left of the branches on the way to it.
    branches: Vec<slice::Iter<'a, Child<K, V>>>,
}

impl<'a, K, V> Iter<'a, K, V> {
    /// To the first leaf below.
    fn descend(&mut self, mut node: &'a Node<K, V>) {
        loop {
            match node {
                Node::Leaf(entries) => {
                    self.leaf = entries.iter();
                    return;
                }
                Node::Branch(children) => {
                    let mut rest = children.iter();
                    let Some((_, first)) = rest.next() else { return };
                    self.branches.push(rest);
                    node = first;
                }
            }
        }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<(&'a K, &'a V)> {
        loop {
            if let Some((key, value)) = self.leaf.next() {
                return Some((key, value));
            }
            match self.branches.last_mut()?.next() {
                Some((_, child)) => self.descend(child),
                None => drop(self.branches.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        Insert(u16),
        Remove(u16),
        Change(u16),
        PopFirst,
        /// Many one after the other, up or down.
        Fill(u16, bool),
        Clear(u16, bool),
        Copy,
    }

    fn act() -> impl Strategy<Value = Act> {
        let key = 0..2000_u16;
        prop_oneof![
            8 => key.clone().prop_map(Act::Insert),
            8 => key.clone().prop_map(Act::Remove),
            2 => key.clone().prop_map(Act::Change),
            1 => Just(Act::PopFirst),
            1 => (key.clone(), any::<bool>()).prop_map(|(from, up)| Act::Fill(from, up)),
            1 => (key, any::<bool>()).prop_map(|(from, up)| Act::Clear(from, up)),
            1 => Just(Act::Copy),
        ]
    }

    fn run(from: u16, up: bool) -> impl Iterator<Item = u16> {
        (0..400).map(move |it| if up { from.saturating_add(it) } else { from.saturating_sub(it) })
    }

    /// How deep it is. Panics unless every node is as it must be.
    fn check<K: Ord + Clone, V: Clone>(node: &Node<K, V>, above: Option<&K>, is_root: bool) -> usize {
        assert!(node.len() <= ENTRIES_MAX && (is_root || node.len() > 0));
        match node {
            Node::Leaf(entries) => {
                assert!(entries.is_sorted_by(|a, b| a.0 < b.0) && entries.first().map(|it| &it.0) >= above);
                0
            }
            Node::Branch(children) => {
                assert!(!is_root || children.len() > 1);
                assert!(children.is_sorted_by(|a, b| a.0 < b.0) && Some(&children[0].0) >= above);
                let depths: Vec<usize> = children.iter().map(|(key, child)| check(child, Some(key), false)).collect();
                assert!(depths.iter().all(|it| *it == depths[0]));
                depths[0] + 1
            }
        }
    }

    fn same(tree: &Tree<u16, u32>, model: &BTreeMap<u16, u32>) {
        check(&tree.root, None, true);
        assert_eq!((tree.len(), tree.is_empty()), (model.len(), model.is_empty()));
        assert!(tree.iter().eq(model.iter()));
        assert_eq!((tree.first(), tree.last()), (model.first_key_value(), model.last_key_value()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_is_an_ordered_map_and_what_was_copied_stays_as_it_was(acts in proptest::collection::vec(act(), 1..120)) {
            let (mut tree, mut model) = (Tree::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for (count, act) in (0_u32..).zip(acts) {
                match act {
                    Act::Insert(key) => assert_eq!(tree.insert(key, count), model.insert(key, count)),
                    Act::Remove(key) => assert_eq!(tree.remove(&key), model.remove_entry(&key)),
                    Act::Change(key) => {
                        let (value, expected) = (tree.find_mut(&key).map(|it| it.1), model.get_mut(&key));
                        assert_eq!(value, expected);
                        if let (Some(value), Some(expected)) = (value, expected) {
                            (*value, *expected) = (count, count);
                        }
                    }
                    Act::PopFirst => assert_eq!(tree.pop_first(), model.pop_first()),
                    Act::Fill(from, up) => {
                        for key in run(from, up) {
                            assert_eq!(tree.insert(key, count), model.insert(key, count));
                        }
                    }
                    Act::Clear(from, up) => {
                        for key in run(from, up) {
                            assert_eq!(tree.remove(&key), model.remove_entry(&key));
                        }
                    }
                    Act::Copy => copies.push((tree.clone(), model.clone())),
                }
                let key = (count * 97 % 2000) as u16;
                assert_eq!((tree.get(&key), tree.contains(&key)), (model.get(&key), model.contains_key(&key)));
                for start in [Bound::Included(&key), Bound::Excluded(&key), Bound::Unbounded] {
                    assert!(tree.from(start).eq(model.range::<u16, _>((start, Bound::Unbounded))));
                }
                same(&tree, &model);
            }
            for (tree, model) in copies {
                same(&tree, &model);
            }
        }
    }

    fn nodes<'a, K, V>(node: &'a Arc<Node<K, V>>, all: &mut Vec<&'a Arc<Node<K, V>>>) {
        all.push(node);
        match &**node {
            Node::Leaf(_) => {}
            Node::Branch(children) => children.iter().for_each(|(_, child)| nodes(child, all)),
        }
    }

    #[test]
    fn a_change_copies_the_way_to_it_and_nothing_else() {
        let mut tree: Tree<u32, ()> = (0..100_000).map(|it| (it, ())).collect();
        let copy = tree.clone();
        tree.insert(50_000, ());
        let (mut own, mut before) = (Vec::new(), Vec::new());
        nodes(&tree.root, &mut own);
        nodes(&copy.root, &mut before);
        assert_eq!(own.len(), before.len());
        let copied = own.iter().zip(&before).filter(|(own, before)| !Arc::ptr_eq(own, before)).count();
        assert_eq!(copied, check(&tree.root, None, true) + 1, "one node on each level");
        drop(copy);
        let root = Arc::as_ptr(&tree.root);
        tree.insert(50_000, ());
        assert_eq!(root, Arc::as_ptr(&tree.root), "whoever is alone copies nothing");
    }

    #[test]
    fn a_root_that_is_split_keeps_the_key_it_is_found_by() {
        let full = (ENTRIES_MAX * ENTRIES_MAX) as u32;
        let mut tree: Tree<u32, ()> = (0..full).map(|it| (it, ())).collect();
        // Below it there is something smaller than the first that is left.
        tree.remove(&0);
        tree.insert(full, ());
        assert_eq!(check(&tree.root, None, true), 2);
    }

    #[test]
    fn what_comes_in_order_fills_its_nodes() {
        let tree: Tree<u32, ()> = (0..100_000).map(|it| (it, ())).collect();
        let mut all = Vec::new();
        nodes(&tree.root, &mut all);
        assert!(all.len() < 100_000 / ENTRIES_MAX * 11 / 10, "{} nodes", all.len());
    }
}
