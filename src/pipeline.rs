//! A byte-bounded, order-keeping parallel map: the way from disk to the encoder.
//!
//! Decoded pictures differ a hundredfold in size, so the queue is bounded by bytes, not by items. Jobs are started
//! in order and their results are handed over in order, so the consumer's batches do not depend on thread timing.
//! Shutdown: workers end when the jobs are spent, a stop was asked for or the consumer left; the consumer ends after the
//! last result or at a stop.

use crate::progress::Cancel;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What [`run`] is given besides its jobs.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Worker threads; at least one runs.
    pub threads: usize,
    /// Bytes in flight: from the start of a job until its [`Permit`] is dropped. It is passed by at most one job, when
    /// the consumer holds permits and waits for more: a batch larger than the budget is slow, never stuck.
    pub budget: u64,
}

/// Bytes that a job holds.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// From its start until its result is there.
    pub working: u64,
    /// From then until its [`Permit`] is dropped; at most `working`.
    pub waiting: u64,
}

/// Holds a result's bytes against the budget until it is dropped.
pub struct Permit {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.release(self.bytes);
    }
}

#[derive(Default)]
struct State {
    next: usize,
    in_flight: u64,
    /// Jobs claimed whose results the consumer has not taken yet.
    outstanding: usize,
    /// No job may start any more: the consumer left, or a worker panicked.
    stopped: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    room: Condvar,
}

impl Shared {
    fn release(&self, bytes: u64) {
        self.lock().in_flight -= bytes;
        self.room.notify_all();
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Results<R> {
    ready: Mutex<Ready<R>>,
    arrived: Condvar,
}

struct Ready<R> {
    /// Results that the consumer has not taken, with the bytes they hold.
    results: BTreeMap<usize, (R, u64)>,
    /// Workers that have not left.
    workers: usize,
}

/// Runs `work` over `jobs` on worker threads and `consume` on this one, in the order of `jobs`.
///
/// `cost` says what a job holds while in flight. After a cancel no job is started and no result is
/// consumed any more. A panic in `work` ends the run, and the panic goes on when the workers are joined.
pub fn run<J: Sync, R: Send>(
    jobs: &[J],
    limits: &Limits,
    cancel: &Cancel,
    cost: impl Fn(&J) -> Cost + Sync,
    work: impl Fn(&J) -> R + Sync,
    mut consume: impl FnMut(usize, R, Permit),
) {
    let threads = limits.threads.clamp(1, jobs.len().max(1));
    let shared = Arc::new(Shared::default());
    let results =
        Results { ready: Mutex::new(Ready { results: BTreeMap::new(), workers: threads }), arrived: Condvar::new() };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let _leaving = Leaving { shared: &shared, results: &results };
                while let Some((index, cost)) = claim(&shared, jobs, limits.budget, cancel, &cost) {
                    let result = work(&jobs[index]);
                    let waiting = cost.waiting.min(cost.working);
                    shared.release(cost.working - waiting);
                    let mut ready = results.ready.lock().unwrap_or_else(PoisonError::into_inner);
                    ready.results.insert(index, (result, waiting));
                    results.arrived.notify_all();
                }
            });
        }
        let _stopping = Stopping(&shared);
        for index in 0..jobs.len() {
            if cancel.is_cancelled() {
                break;
            }
            let Some((result, bytes)) = results.take(index) else { break };
            shared.lock().outstanding -= 1;
            shared.room.notify_all();
            consume(index, result, Permit { shared: Arc::clone(&shared), bytes });
        }
    });
}

/// Takes the next job, waiting for room; jobs are claimed in order, so the one the consumer waits for is never starved.
fn claim<J>(
    shared: &Shared,
    jobs: &[J],
    budget: u64,
    cancel: &Cancel,
    cost: &impl Fn(&J) -> Cost,
) -> Option<(usize, Cost)> {
    let mut state = shared.lock();
    loop {
        if state.stopped || cancel.is_cancelled() || state.next >= jobs.len() {
            return None;
        }
        let cost = cost(&jobs[state.next]);
        if state.outstanding == 0 || state.in_flight.saturating_add(cost.working) <= budget {
            state.in_flight += cost.working;
            state.outstanding += 1;
            state.next += 1;
            return Some((state.next - 1, cost));
        }
        state = shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

impl<R> Results<R> {
    /// The result of job `index`, or `None` when every worker has left without producing it.
    fn take(&self, index: usize) -> Option<(R, u64)> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = ready.results.remove(&index) {
                return Some(result);
            }
            if ready.workers == 0 {
                return None;
            }
            ready = self.arrived.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Signs a worker off, on a panic too, so that the consumer never waits for the dead.
struct Leaving<'a, R> {
    shared: &'a Shared,
    results: &'a Results<R>,
}

impl<R> Drop for Leaving<'_, R> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.stop();
        }
        let mut ready = self.results.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.workers -= 1;
        self.results.arrived.notify_all();
    }
}

/// Ends the workers when the consumer is done, by a cancel or a panic too.
struct Stopping<'a>(&'a Shared);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A job whose result is as large as what made it.
    fn flat(bytes: u64) -> Cost {
        Cost { working: bytes, waiting: bytes }
    }

    fn limits(threads: usize, budget: u64) -> Limits {
        Limits { threads, budget }
    }

    #[test]
    fn results_arrive_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..200).collect();
        let mut seen = Vec::new();
        let work = |job: &u64| {
            std::thread::yield_now();
            job * 2
        };
        run(
            &jobs,
            &limits(4, 1000),
            &Cancel::default(),
            |_| flat(7),
            work,
            |index, result, _permit| seen.push((index, result)),
        );
        let wanted: Vec<(usize, u64)> = (0..200).map(|i| (i as usize, i * 2)).collect();
        assert_eq!(seen, wanted);
    }

    #[test]
    fn bytes_in_flight_stay_under_the_budget() {
        let (now, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        let jobs: Vec<u64> = (0..100).map(|i| 10 + i % 30).collect();
        let work = |&bytes: &u64| {
            let held = now.fetch_add(bytes, Ordering::SeqCst) + bytes;
            peak.fetch_max(held, Ordering::SeqCst);
        };
        run(
            &jobs,
            &limits(8, 100),
            &Cancel::default(),
            |&bytes| flat(bytes),
            work,
            |index, (), permit| {
                now.fetch_sub(jobs[index], Ordering::SeqCst);
                drop(permit);
            },
        );
        assert!(peak.load(Ordering::SeqCst) <= 100);
    }

    #[test]
    fn a_finished_job_holds_only_its_result() {
        let (jobs, cancel, started) = ([(); 6], Cancel::default(), AtomicU64::new(0));
        let mut held = Vec::new();
        let cost = |(): &()| Cost { working: 60, waiting: 10 };
        let work = |(): &()| started.fetch_add(1, Ordering::SeqCst);
        run(&jobs, &limits(1, 100), &cancel, cost, work, |_, _, permit| held.push(permit));
        assert_eq!(held.iter().map(|permit| permit.bytes).sum::<u64>(), 60);
        assert_eq!(held[0].shared.lock().in_flight, 60);
    }

    #[test]
    fn a_job_larger_than_the_budget_runs_alone() {
        let mut consumed = 0;
        run(&[500u64, 600], &limits(2, 100), &Cancel::default(), |&b| flat(b), |_| (), |_, (), _| consumed += 1);
        assert_eq!(consumed, 2);
    }

    #[test]
    fn a_batch_larger_than_the_budget_is_not_stuck() {
        let mut batch = Vec::new();
        let jobs = [40u64; 10];
        run(&jobs, &limits(2, 100), &Cancel::default(), |&b| flat(b), |_| (), |_, (), permit| batch.push(permit.bytes));
        assert_eq!(batch.len(), 10);
        let mut held = Vec::new();
        run(
            &jobs,
            &limits(2, 100),
            &Cancel::default(),
            |&b| flat(b),
            |_| (),
            |index, (), permit| {
                // Permits leak their lifetime into no other test: they are only counted here.
                std::mem::forget(permit);
                held.push(index);
            },
        );
        assert_eq!(held, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_cancel_ends_the_run_with_what_was_started() {
        let cancel = Cancel::default();
        let jobs: Vec<u64> = (0..1000).collect();
        let mut consumed = 0;
        run(
            &jobs,
            &limits(2, 10),
            &cancel,
            |_| flat(5),
            |_| (),
            |_, (), _| {
                consumed += 1;
                cancel.cancel();
            },
        );
        assert_eq!(consumed, 1);
    }

    #[test]
    fn a_panic_in_a_worker_ends_the_run_instead_of_hanging_it() {
        let jobs: Vec<u64> = (0..100).collect();
        let work = |&job: &u64| assert!(job != 5, "this job breaks");
        let run = || run(&jobs, &limits(3, 10), &Cancel::default(), |_| flat(5), work, |_, (), _| {});
        assert!(std::panic::catch_unwind(run).is_err());
    }
}
