//! What waits for the devices: one bounded queue for all, to which a device gives back what it failed on, so that another
//! one tries.
//!
//! Nobody waits for the dead: a device that leaves, by a panic too, gives up its seat, and a collector that finds no seat
//! taken does not wait.

use crate::progress::Cancel;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A queue from one collector to several devices.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    room: usize,
}

struct State<T> {
    waiting: VecDeque<Item<T>>,
    /// Items that devices work on; each may still be given back.
    in_hand: usize,
    /// Devices that take items.
    seats: usize,
    /// Nothing is added any more but what is given back.
    closed: bool,
}

struct Item<T> {
    content: T,
    /// The device that failed on it.
    refused_by: Option<usize>,
}

impl<T> Queue<T> {
    /// A queue that holds `room` items, and for as many devices as [`Queue::seat`] is called for.
    pub(super) fn new(room: usize) -> Self {
        let state = State { waiting: VecDeque::new(), in_hand: 0, seats: 0, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), room: room.max(1) }
    }

    /// A device's place at the queue. All seats are taken before anything is added.
    pub(super) fn seat(&self, device: usize) -> Seat<'_, T> {
        self.lock().seats += 1;
        Seat { queue: self, device, in_hand: None }
    }

    /// Adds an item, waiting for room; it is dropped where no device is left.
    pub(super) fn push(&self, content: T) {
        let mut state = self.lock();
        while state.waiting.len() >= self.room && state.seats > 0 {
            state = self.wait(state);
        }
        if state.seats > 0 {
            state.waiting.push_back(Item { content, refused_by: None });
            self.changed.notify_all();
        }
    }

    /// Lets the devices go once everything is done.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    /// The first item for `device`: it is not tried again by the one that failed on it, unless that is the last one.
    fn first_for(&self, device: usize) -> Option<usize> {
        self.waiting.iter().position(|item| item.refused_by != Some(device) || self.seats == 1)
    }
}

/// One device's end of a [`Queue`].
pub(super) struct Seat<'a, T> {
    queue: &'a Queue<T>,
    device: usize,
    /// What was taken last, not what became of it: whether another device had failed on it.
    in_hand: Option<Taken>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Fresh,
    Refused,
}

impl<T> Seat<'_, T> {
    /// The next item, once there is one; `None` after the last one, or a cancel. What was taken before is done.
    pub(super) fn next(&mut self, cancel: &Cancel) -> Option<T> {
        let mut state = self.queue.lock();
        self.put_down(&mut state);
        loop {
            if cancel.is_cancelled() {
                return None;
            }
            if let Some(item) = state.first_for(self.device).and_then(|at| state.waiting.remove(at)) {
                self.in_hand = Some(if item.refused_by.is_none() { Taken::Fresh } else { Taken::Refused });
                state.in_hand += 1;
                self.queue.changed.notify_all();
                return Some(item.content);
            }
            if state.closed && state.in_hand == 0 {
                return None;
            }
            state = self.queue.wait(state);
        }
    }

    /// True when another device may try what was taken: there is one, and none has failed on it yet.
    pub(super) fn can_give_back(&self) -> bool {
        self.in_hand == Some(Taken::Fresh) && self.queue.lock().seats > 1
    }

    /// Leaves `content`, what is undone of that which was taken, to another device.
    pub(super) fn give_back(&mut self, content: T) {
        let mut state = self.queue.lock();
        state.waiting.push_front(Item { content, refused_by: Some(self.device) });
        self.put_down(&mut state);
    }

    fn put_down(&mut self, state: &mut State<T>) {
        if self.in_hand.take().is_some() {
            state.in_hand -= 1;
        }
        self.queue.changed.notify_all();
    }
}

impl<T> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        let queue = self.queue;
        let mut state = queue.lock();
        self.put_down(&mut state);
        state.seats -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Runs `devices` threads over `items`; `accepts` says whether a device can do an item. Gives what was done by whom.
    fn served(
        devices: usize,
        items: std::ops::Range<usize>,
        accepts: impl Fn(usize, usize) -> bool + Sync,
    ) -> Vec<(usize, usize)> {
        let (queue, cancel, done) = (Queue::new(2), Cancel::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let seats: Vec<_> = (0..devices).map(|device| (device, queue.seat(device))).collect();
            for (device, mut seat) in seats {
                let (done, accepts, cancel) = (&done, &accepts, &cancel);
                scope.spawn(move || {
                    while let Some(item) = seat.next(cancel) {
                        if accepts(device, item) || !seat.can_give_back() {
                            done.lock().unwrap().push((device, item));
                        } else {
                            seat.give_back(item);
                        }
                    }
                });
            }
            items.for_each(|item| queue.push(item));
            queue.close();
        });
        done.into_inner().unwrap()
    }

    #[test]
    fn every_item_is_done_once_whatever_the_number_of_devices() {
        for devices in 1..4 {
            let mut done: Vec<_> = served(devices, 0..200, |_, _| true).into_iter().map(|(_, item)| item).collect();
            done.sort_unstable();
            assert_eq!(done, (0..200).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_one_device_fails_on_another_does() {
        let done = served(2, 0..50, |device, _| device == 1);
        assert_eq!(done.len(), 50);
        assert!(done.iter().all(|&(device, _)| device == 1), "{done:?}");
    }

    #[test]
    fn what_every_device_fails_on_is_tried_twice_and_no_more() {
        let tries = AtomicUsize::new(0);
        let done = served(3, 0..1, |_, _| {
            tries.fetch_add(1, Ordering::SeqCst);
            false
        });
        assert_eq!((done.len(), tries.into_inner()), (1, 2));
    }

    #[test]
    fn a_cancel_lets_the_devices_and_a_waiting_collector_go() {
        let (queue, cancel) = (Queue::new(1), Cancel::default());
        std::thread::scope(|scope| {
            let mut seat = queue.seat(0);
            scope.spawn(|| {
                assert_eq!(seat.next(&cancel), Some(0));
                cancel.cancel();
                assert_eq!(seat.next(&cancel), None);
                drop(seat);
            });
            (0..5).for_each(|item| queue.push(item));
        });
    }

    #[test]
    fn a_device_that_breaks_down_leaves_its_work_undone_and_nobody_waiting() {
        let (queue, cancel) = (Queue::new(1), Cancel::default());
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            std::thread::scope(|scope| {
                let mut seat = queue.seat(0);
                let cancel = &cancel;
                scope.spawn(move || {
                    assert_eq!(seat.next(cancel), Some(7), "this device breaks");
                });
                (0..5).for_each(|item| queue.push(item));
            });
        }));
        assert!(broken.is_err());
    }
}
