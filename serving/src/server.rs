//! A scheduler on a thread of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use dialog::{RequestBase, RequestReply};

use crate::scheduler::Counts;
use crate::{Event, Finished, Request, RequestId, Scheduler, ServeError, Slot, TickWatch};

/// Time from a step that could not run, as with the model's stop flag set, to the next try.
const RETRY: Duration = Duration::from_millis(20);

enum Command {
    Submit {
        requests: Vec<Submitted>,
        /// They may wait behind a step.
        came: Instant,
        answer: Sender<Result<Vec<Taken>, ServeError>>,
    },
    Call(Box<dyn FnOnce(&mut Scheduler) + Send>),
    ShutDown,
}

/// A request that is handed in.
struct Submitted {
    reply: RequestReply,
    priority: i32,
    events: Sender<Event>,
}

/// A request that was taken, and what cancels it.
type Taken = (RequestId, Arc<AtomicBool>);

/// Requests from any thread; one thread runs the model. Dropping it ends all requests.
#[derive(Debug)]
pub struct Server {
    commands: Sender<Command>,
    base: RequestBase,
    n_vocab: usize,
    thread: Option<JoinHandle<()>>,
}

/// A request that was taken. Dropping it cancels the request.
#[derive(Debug)]
pub struct RequestHandle {
    id: RequestId,
    events: Receiver<Event>,
    cancel: Arc<AtomicBool>,
}

impl RequestHandle {
    /// Its number.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// What happens to it; ends after the last event.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.events.iter()
    }

    /// Ends the request before the next step.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Waits for the reply.
    ///
    /// # Errors
    /// Why there is none.
    pub fn wait(self) -> Result<Finished, ServeError> {
        for event in self.events.iter() {
            match event {
                Event::Done(finished) => return Ok(*finished),
                Event::Failed { error, .. } => return Err(error),
                _ => {}
            }
        }
        Err(ServeError::ShutDown)
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Server {
    /// Runs a scheduler on a thread.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub fn start(scheduler: Scheduler) -> std::io::Result<Self> {
        let (commands, inbox) = unbounded();
        let (base, n_vocab) = (scheduler.base().clone(), scheduler.vocab_size());
        let thread =
            std::thread::Builder::new().name("serving".into()).spawn(move || Loop::new(scheduler).run(&inbox))?;
        Ok(Self { commands, base, n_vocab, thread: Some(thread) })
    }

    /// What requests are made of: encodes prompts.
    pub fn base(&self) -> &RequestBase {
        &self.base
    }

    /// Hands in a request. Its grammar is compiled on the caller's thread.
    ///
    /// # Errors
    /// Those of [`Scheduler::submit`]; [`ServeError::ShutDown`].
    pub fn submit(&self, request: Request) -> Result<RequestHandle, ServeError> {
        self.submit_all(vec![request])?.pop().ok_or(ServeError::ShutDown)
    }

    /// Hands in several requests between two steps: all of them or none.
    ///
    /// # Errors
    /// As [`submit`](Self::submit), of the first that is refused; [`ServeError::TooManyAtOnce`] for more than run or wait at once.
    pub fn submit_all(&self, requests: Vec<Request>) -> Result<Vec<RequestHandle>, ServeError> {
        let came = Instant::now();
        let mut receivers = Vec::with_capacity(requests.len());
        let mut submitted = Vec::with_capacity(requests.len());
        for request in requests {
            let reply = self.base.request(request.prompt, request.settings, self.n_vocab)?;
            let (events, received) = unbounded();
            receivers.push(received);
            submitted.push(Submitted { reply, priority: request.priority, events });
        }
        let (answer, answered) = bounded(1);
        let command = Command::Submit { requests: submitted, came, answer };
        self.commands.send(command).map_err(|_| ServeError::ShutDown)?;
        let taken = answered.recv().map_err(|_| ServeError::ShutDown)??;
        let handle = |((id, cancel), events)| RequestHandle { id, events, cancel };
        Ok(taken.into_iter().zip(receivers).map(handle).collect())
    }

    /// Whether the thread still runs: before the server is dropped it ends by a panic only. Waits for no step.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// What there is now.
    ///
    /// # Errors
    /// [`ServeError::ShutDown`].
    pub fn counts(&self) -> Result<Counts, ServeError> {
        self.between_steps(Scheduler::counts)
    }

    /// Has the thread of the model do something between two steps, and waits for it.
    ///
    /// # Errors
    /// [`ServeError::ShutDown`].
    pub fn between_steps<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Scheduler) -> T + Send + 'static,
    ) -> Result<T, ServeError> {
        let (answer, answered) = bounded(1);
        // A caller that is gone has dropped its receiver.
        let call = move |scheduler: &mut Scheduler| drop(answer.send(what(scheduler)));
        self.commands.send(Command::Call(Box::new(call))).map_err(|_| ServeError::ShutDown)?;
        answered.recv().map_err(|_| ServeError::ShutDown)
    }

    /// The slots that hold tokens.
    ///
    /// # Errors
    /// [`ServeError::ShutDown`].
    pub fn slots(&self) -> Result<Vec<Slot>, ServeError> {
        self.between_steps(Scheduler::slots)
    }

    /// An event for each step from now on; see [`Scheduler::watch`].
    ///
    /// # Errors
    /// [`ServeError::ShutDown`].
    pub fn watch(&self, room: usize) -> Result<TickWatch, ServeError> {
        self.between_steps(move |scheduler| scheduler.watch(room))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A thread that is gone needs no telling.
        let _ = self.commands.send(Command::ShutDown);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the serving thread has panicked");
        }
    }
}

struct Loop {
    scheduler: Scheduler,
    began: Instant,
    clients: HashMap<RequestId, (Sender<Event>, Arc<AtomicBool>)>,
}

impl Loop {
    fn new(scheduler: Scheduler) -> Self {
        Self { scheduler, began: Instant::now(), clients: HashMap::new() }
    }

    fn now_us(&self) -> u64 {
        self.us_at(Instant::now())
    }

    fn us_at(&self, time: Instant) -> u64 {
        u64::try_from(time.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    fn run(mut self, inbox: &Receiver<Command>) {
        let (mut wait, mut held) = (None, false);
        loop {
            // With work at hand nothing is waited for; without, until someone calls or the time to wait for others is over.
            let command = match (self.scheduler.is_idle(), wait.take()) {
                (true, _) => inbox.recv().ok().map(Some),
                (false, Some(time)) => match inbox.recv_timeout(time) {
                    Ok(command) => Some(Some(command)),
                    Err(RecvTimeoutError::Timeout) => Some(None),
                    Err(RecvTimeoutError::Disconnected) => None,
                },
                (false, None) => Some(None),
            };
            let Some(command) = command else { break };
            for command in command.into_iter().chain(inbox.try_iter()) {
                if self.obey(command) {
                    self.shut_down();
                    return;
                }
            }
            if self.scheduler.is_idle() {
                continue;
            }
            let now = self.now_us();
            match self.scheduler.tick(now) {
                Ok(report) => {
                    wait = report.wait_until_us.map(|until| Duration::from_micros(until.saturating_sub(now)));
                }
                Err(error) => {
                    if !std::mem::replace(&mut held, true) {
                        tracing::error!(%error, "a step failed; it is tried again");
                    }
                    wait = Some(RETRY);
                    self.hand_out();
                    continue;
                }
            }
            held = false;
            self.hand_out();
        }
        self.shut_down();
    }

    /// Whether it was the last command.
    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Submit { requests, came, answer } => {
                // A caller that is gone has dropped its receiver: the first event finds out.
                let _ = answer.send(self.take(requests, came));
            }
            Command::Call(call) => call(&mut self.scheduler),
            Command::ShutDown => return true,
        }
        false
    }

    /// Takes all requests; those before one that is refused are taken back, and no event of theirs is handed out.
    fn take(&mut self, requests: Vec<Submitted>, came: Instant) -> Result<Vec<Taken>, ServeError> {
        let scheduler = &self.scheduler;
        let (found, most) = (requests.len(), scheduler.options().max_waiting.saturating_add(scheduler.most_running()));
        if found > most {
            return Err(ServeError::TooManyAtOnce { found, most });
        }
        let came = (self.us_at(came), came);
        let mut taken = Vec::with_capacity(requests.len());
        for Submitted { reply, priority, events } in requests {
            match self.scheduler.submit_from(came, reply, priority) {
                Ok(id) => {
                    let cancel = self.scheduler.cancel_flag(id).unwrap_or_default();
                    self.clients.insert(id, (events, Arc::clone(&cancel)));
                    taken.push((id, cancel));
                }
                Err(error) => {
                    for (id, _) in taken {
                        self.scheduler.take_back(id);
                        self.clients.remove(&id);
                    }
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    fn hand_out(&mut self) {
        for event in self.scheduler.take_events() {
            let (id, is_last) = (event.id(), event.is_last());
            if let Some((events, cancel)) = self.clients.get(&id)
                && events.send(event).is_err()
            {
                cancel.store(true, Ordering::Relaxed);
            }
            if is_last {
                self.clients.remove(&id);
            }
        }
    }

    fn shut_down(mut self) {
        self.hand_out();
        for (id, (events, _)) in self.clients.drain() {
            let _ = events.send(Event::Failed { id, error: ServeError::ShutDown });
        }
    }
}
