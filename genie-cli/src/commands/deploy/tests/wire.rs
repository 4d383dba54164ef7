//! A cable that can be cut: passes bytes between a port of its own and another, up to a budget.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The cable; it lies until the process ends.
pub struct Cable {
    pub port: u16,
    budget: Arc<AtomicI64>,
}

impl Cable {
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let cable = Self { port: listener.local_addr().unwrap().port(), budget: Arc::new(AtomicI64::new(i64::MAX)) };
        let budget = Arc::clone(&cable.budget);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let budget = Arc::clone(&budget);
                std::thread::spawn(move || pass(near, far, &budget));
                std::thread::spawn(move || pass(far2, near2, &AtomicI64::new(i64::MAX)));
            }
        });
        cable
    }

    /// Cuts it after this number of bytes towards the other port.
    pub fn cut_after(&self, n_bytes: u64) {
        self.budget.store(i64::try_from(n_bytes).unwrap(), Ordering::SeqCst);
    }

    /// Mends it.
    pub fn mend(&self) {
        self.budget.store(i64::MAX, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, budget: &AtomicI64) {
    let mut chunk = [0; 1 << 14];
    while let Ok(n @ 1..) = from.read(&mut chunk) {
        if budget.fetch_sub(n as i64, Ordering::SeqCst) < n as i64 || to.write_all(&chunk[..n]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
