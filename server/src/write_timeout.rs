//! A connection whose writes fail once the other side has taken nothing for a while: a client that does not read would keep its place
//! for as long as it wants otherwise.
//!
//! *Invariant*: the time counts from the first write that had to wait; each byte that is taken, and each write that is done, ends it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream with a limit to how long a write may stand still.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// Since when nothing was taken; none: no write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    /// A stream whose writes may stand still for `limit`.
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, stalled: None }
    }
}

impl<S: AsyncWrite + Unpin> WriteTimeout<S> {
    /// Does a part of a write; fails where it waits for longer than the limit.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = write(Pin::new(&mut self.stream), context) {
            self.stalled = None;
            return Poll::Ready(done);
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stalled.as_mut().poll(context));
        let message = format!("the client has read nothing for {} s", limit.as_secs_f64());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.watch(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        all: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch(context, |stream, context| stream.poll_write_vectored(context, all))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(context, |stream, context| stream.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// The other side: takes a byte each time its pause is over; without a pause it takes none.
    struct Reader {
        pause: Option<Duration>,
        next: Option<Pin<Box<Sleep>>>,
    }

    impl AsyncWrite for Reader {
        fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            let Some(pause) = self.pause else { return Poll::Pending };
            ready!(self.next.get_or_insert_with(|| Box::pin(sleep(pause))).as_mut().poll(context));
            self.next = None;
            Poll::Ready(Ok(1))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn write(stream: &mut WriteTimeout<Reader>) -> io::Result<usize> {
        poll_fn(|context| Pin::new(&mut *stream).poll_write(context, b"x")).await
    }

    #[tokio::test]
    async fn a_write_that_nothing_takes_fails() {
        let mut stream = WriteTimeout::new(Reader { pause: None, next: None }, Duration::from_millis(20));
        let error = write(&mut stream).await.expect_err("nothing is read");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "the client has read nothing for 0.02 s");
    }

    /// Longer than the limit in all, and never so long between two bytes.
    #[tokio::test]
    async fn a_slow_reader_is_no_stalled_one() {
        let limit = Duration::from_millis(800);
        let mut stream = WriteTimeout::new(Reader { pause: Some(limit / 8), next: None }, limit);
        let began = tokio::time::Instant::now();
        for _ in 0..10 {
            assert_eq!(write(&mut stream).await.expect("the client reads"), 1);
        }
        assert!(began.elapsed() > limit);
    }
}
