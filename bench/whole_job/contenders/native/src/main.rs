//! The native bound: the steps of tallystick's job without exactly-once, in one process with a thread per core.
//!
//!     native-bound ORDER
//!
//! ORDER is a JSON file, see `Order`. Each thread reads a partition at a time and uploads a Parquet file per partition
//! and table. Nothing is committed: a second run would leave other files next to these.

mod clicks;
mod json;
mod topic;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, anyhow};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use serde::Deserialize;

use clicks::{PartitionFiles, Totals};

// Each thread allocates and frees the same sizes again and again, which mimalloc does faster than glibc.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SIGNED_FOR: Duration = Duration::from_secs(600);

/// What to replay, and where to write it: partition p from offset 0 to `ends[p]`.
#[derive(Deserialize)]
struct Order {
    topic: String,
    ends: Vec<i64>,
    bootstrap: String,
    bucket: String,
    prefix: String,
    case: String,
    threads: usize,
}

fn main() -> Result<()> {
    let path = env::args().nth(1).context("usage: native-bound ORDER")?;
    let order: Order = sonic_rs::from_slice(&fs::read(path)?)?;
    let store = Store::from_environment(&order.bucket)?;
    let started = AtomicUsize::new(0);
    let totals = thread::scope(|scope| {
        let threads: Vec<_> = (0..order.threads)
            .map(|_| scope.spawn(|| replay_partitions(&order, &store, &started)))
            .collect();
        let mut totals = Totals::default();
        for thread in threads {
            totals.merge(thread.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        anyhow::Ok(totals)
    })?;
    if order.case == "three" {
        store.put(
            &format!("{}/totals/totals.parquet", order.prefix),
            &totals.into_parquet()?,
        )?;
    }
    Ok(())
}

/// Replays partitions that no other thread has started, until none is left; returns the totals of their events.
fn replay_partitions(order: &Order, store: &Store, started: &AtomicUsize) -> Result<Totals> {
    let mut totals = Totals::default();
    let mut upload: Option<JoinHandle<Result<()>>> = None;
    loop {
        let partition = started.fetch_add(1, Ordering::Relaxed);
        let Some(&end) = order.ends.get(partition) else {
            break;
        };
        let mut files = PartitionFiles::new(partition as i32, order.case == "three")?;
        topic::read(
            &order.bootstrap,
            &order.topic,
            partition as i32,
            end,
            |record| files.add(record, &mut totals),
        )?;
        let (events, dead_letters) = files.finish()?;
        // One upload at a time, while the thread reads the next partition: memory for two files per thread at most.
        join(upload.take())?;
        let (store, prefix) = (store.clone(), order.prefix.clone());
        upload = Some(thread::spawn(move || {
            store.put(&format!("{prefix}/events/{partition}.parquet"), &events)?;
            match dead_letters {
                Some(file) => {
                    store.put(&format!("{prefix}/dead_letters/{partition}.parquet"), &file)
                }
                None => Ok(()),
            }
        }));
    }
    join(upload)?;
    Ok(totals)
}

fn join(upload: Option<JoinHandle<Result<()>>>) -> Result<()> {
    upload.map_or(Ok(()), |thread| {
        thread.join().map_err(|_| anyhow!("an upload panicked"))?
    })
}

/// A bucket with the credentials and the endpoint of the environment, in the names that boto3 reads.
#[derive(Clone)]
struct Store {
    bucket: Bucket,
    credentials: Credentials,
}

impl Store {
    fn from_environment(bucket: &str) -> Result<Self> {
        let get = |name: &'static str| env::var(name).context(name);
        let endpoint = get("AWS_ENDPOINT_URL_S3")?
            .parse()
            .context("AWS_ENDPOINT_URL_S3")?;
        Ok(Self {
            bucket: Bucket::new(
                endpoint,
                UrlStyle::Path,
                bucket.to_owned(),
                get("AWS_REGION")?,
            )?,
            credentials: Credentials::new(get("AWS_ACCESS_KEY_ID")?, get("AWS_SECRET_ACCESS_KEY")?),
        })
    }

    /// Uploads an object with one request. The signature covers the address, not the body, as usual over TLS.
    fn put(&self, key: &str, body: &[u8]) -> Result<()> {
        let address = self
            .bucket
            .put_object(Some(&self.credentials), key)
            .sign(SIGNED_FOR);
        ureq::put(address.as_str())
            .send(body)
            .with_context(|| format!("upload of {key}"))?;
        Ok(())
    }
}
