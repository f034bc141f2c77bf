//! Reads a partition of a topic: Kafka's Fetch requests and record batches, without an object per record.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiKey, BrokerId, FetchRequest, FetchResponse, MetadataRequest, MetadataResponse,
    RequestHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use lz4_sys::{
    LZ4F_VERSION, LZ4F_createDecompressionContext, LZ4F_decompress, LZ4F_freeDecompressionContext,
    LZ4F_isError, LZ4F_resetDecompressionContext, LZ4FDecompressionContext,
};

// Every broker since 2.3 has both.
const METADATA: (ApiKey, i16) = (ApiKey::Metadata, 8);
const FETCH: (ApiKey, i16) = (ApiKey::Fetch, 11);
const FETCH_BYTES: i32 = 4 << 20;
const READ_COMMITTED: i8 = 1;
const WAIT_MS: i32 = 1_000;
const EMPTY_FETCHES_MAX: usize = 60;
const ANSWER_S: u64 = 60;

/// One record. A tombstone has no value.
pub struct Record<'a> {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub value: Option<&'a [u8]>,
}

/// Calls `each` with every committed record of the partition from offset 0 to `end`, in order.
pub fn read(
    bootstrap: &str,
    topic: &str,
    partition: i32,
    end: i64,
    mut each: impl FnMut(Record) -> Result<()>,
) -> Result<()> {
    if end == 0 {
        return Ok(());
    }
    let leader = leader_of(bootstrap, topic, partition)?;
    let mut connection = Connection::open(&leader)?;
    let mut decompressor = Decompressor::new()?;
    let (mut offset, mut empty_fetches) = (0, 0);
    connection.send(FETCH, &fetch_request(topic, partition, offset))?;
    while offset < end {
        let fetched = fetched(connection.receive(FETCH)?)?;
        let records = fetched.records.unwrap_or_default();
        let batches: Vec<_> = Batches { left: &records }.collect::<Result<_>>()?;
        let next = batches
            .last()
            .map_or(offset, |batch| batch.last_offset() + 1);
        empty_fetches = if next > offset { 0 } else { empty_fetches + 1 };
        ensure!(
            empty_fetches <= EMPTY_FETCHES_MAX,
            "partition {partition}: no record at {offset}"
        );
        if next < end {
            // The broker prepares and sends this while the records of the last answer are decoded.
            connection.send(FETCH, &fetch_request(topic, partition, next))?;
        }
        let aborted = fetched.aborted_transactions.unwrap_or_default();
        let mut aborted: Vec<_> = aborted
            .iter()
            .map(|a| (a.first_offset, a.producer_id.0))
            .collect();
        aborted.sort_unstable();
        for batch in committed(&batches, &aborted) {
            batch.read_records(&mut decompressor, offset..end, &mut each)?;
        }
        offset = next;
        drop(batches);
        connection.reuse(records);
    }
    Ok(())
}

fn leader_of(bootstrap: &str, topic: &str, partition: i32) -> Result<String> {
    let name = TopicName(StrBytes::from_string(topic.to_owned()));
    let asked = MetadataRequestTopic::default().with_name(Some(name));
    let mut connection = Connection::open(bootstrap)?;
    connection.send(
        METADATA,
        &MetadataRequest::default().with_topics(Some(vec![asked])),
    )?;
    let answer: MetadataResponse = connection.receive(METADATA)?;
    let mut partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
    let found = partitions.find(|found| found.partition_index == partition);
    let leader = found
        .with_context(|| format!("{topic} has no partition {partition}"))?
        .leader_id;
    let broker = answer
        .brokers
        .iter()
        .find(|broker| broker.node_id == leader);
    let broker = broker.with_context(|| format!("partition {partition} has no leader"))?;
    Ok(format!("{}:{}", broker.host, broker.port))
}

fn fetch_request(topic: &str, partition: i32, offset: i64) -> FetchRequest {
    let wanted = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(FETCH_BYTES);
    let name = TopicName(StrBytes::from_string(topic.to_owned()));
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(WAIT_MS)
        .with_min_bytes(1)
        .with_max_bytes(FETCH_BYTES)
        .with_isolation_level(READ_COMMITTED)
        .with_session_epoch(-1)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(name)
                .with_partitions(vec![wanted]),
        ])
}

fn fetched(mut answer: FetchResponse) -> Result<PartitionData> {
    ensure!(answer.error_code == 0, "Fetch: error {}", answer.error_code);
    let partition = answer
        .responses
        .pop()
        .and_then(|mut topic| topic.partitions.pop());
    let partition = partition.context("Fetch: an answer without the partition")?;
    ensure!(
        partition.error_code == 0,
        "Fetch: error {} of the partition",
        partition.error_code
    );
    Ok(partition)
}

/// A connection to a broker. Answers come in the order of the requests.
struct Connection {
    stream: TcpStream,
    spare: Vec<u8>,
}

impl Connection {
    fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(ANSWER_S)))?;
        Ok(Self {
            stream,
            spare: Vec::new(),
        })
    }

    fn send(&mut self, (key, version): (ApiKey, i16), request: &impl Encodable) -> Result<()> {
        let header = RequestHeader::default()
            .with_request_api_key(key as i16)
            .with_request_api_version(version)
            .with_client_id(Some(StrBytes::from_static_str("native-bound")));
        let mut message = BytesMut::new();
        header.encode(&mut message, key.request_header_version(version))?;
        request.encode(&mut message, version)?;
        self.stream
            .write_all(&(message.len() as u32).to_be_bytes())?;
        Ok(self.stream.write_all(&message)?)
    }

    fn receive<R: Decodable>(&mut self, (_, version): (ApiKey, i16)) -> Result<R> {
        let mut size = [0; 4];
        self.stream
            .read_exact(&mut size)
            .context("no answer from the broker")?;
        let size = u32::from_be_bytes(size) as usize;
        let mut message = std::mem::take(&mut self.spare);
        message.clear();
        message.reserve(size);
        // `read_to_end` of a `Take` does not fill the buffer with zeros first.
        (&self.stream).take(size as u64).read_to_end(&mut message)?;
        ensure!(message.len() == size, "the broker closed the connection");
        let mut message = Bytes::from(message);
        message.advance(4); // the number of the request
        R::decode(&mut message, version)
    }

    /// Keeps the memory of an answer for the next one, so that the kernel does not map new pages for each.
    fn reuse(&mut self, records: Bytes) {
        self.spare = records.try_into_mut().map(Vec::from).unwrap_or_default();
    }
}

/// Iterates over the whole batches of an answer; the last one may be cut off, and is fetched again.
struct Batches<'a> {
    left: &'a [u8],
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = self
            .left
            .get(8..12)?
            .try_into()
            .map(u32::from_be_bytes)
            .ok()?;
        let (batch, left) = self.left.split_at_checked(12 + length as usize)?;
        self.left = left;
        Some(Batch::checked(batch))
    }
}

/// A record batch of format 2, with its header of 61 bytes.
struct Batch<'a>(&'a [u8]);

impl<'a> Batch<'a> {
    fn checked(bytes: &'a [u8]) -> Result<Self> {
        ensure!(
            bytes.len() >= 61 && bytes[16] == 2,
            "a record batch of an unknown format"
        );
        let batch = Self(bytes);
        let found = crc32c::crc32c(&bytes[21..]);
        ensure!(
            found == batch.i32_at(17) as u32,
            "batch {}: wrong checksum",
            batch.i64_at(0)
        );
        Ok(batch)
    }

    fn i32_at(&self, at: usize) -> i32 {
        (&self.0[at..]).get_i32()
    }

    fn i64_at(&self, at: usize) -> i64 {
        (&self.0[at..]).get_i64()
    }

    fn attributes(&self) -> u8 {
        self.0[22]
    }

    fn last_offset(&self) -> i64 {
        self.i64_at(0) + i64::from(self.i32_at(23))
    }

    /// Calls `each` with the records whose offsets are in the range.
    fn read_records(
        &self,
        decompressor: &mut Decompressor,
        range: std::ops::Range<i64>,
        each: &mut impl FnMut(Record) -> Result<()>,
    ) -> Result<()> {
        let mut left = match self.attributes() & 7 {
            0 => &self.0[61..],
            3 => decompressor.lz4(&self.0[61..])?,
            codec => bail!("codec {codec}: the records of this benchmark are lz4"),
        };
        let (first, base_ms, max_ms) = (self.i64_at(0), self.i64_at(27), self.i64_at(35));
        let is_append_time = self.attributes() & 8 != 0;
        for _ in 0..self.i32_at(57) {
            let length = varint(&mut left)?;
            let record = left
                .split_off(..length as usize)
                .context("a record is cut off")?;
            let mut fields = record.get(1..).context("an empty record")?;
            let delta_ms = varint(&mut fields)?;
            let offset = first + varint(&mut fields)?;
            blob(&mut fields)?;
            let value = blob(&mut fields)?;
            if range.contains(&offset) {
                let timestamp_ms = if is_append_time {
                    max_ms
                } else {
                    base_ms + delta_ms
                };
                each(Record {
                    offset,
                    timestamp_ms,
                    value,
                })?;
            }
        }
        Ok(())
    }
}

/// Returns the batches without markers and without those of aborted transactions (first offset and producer, sorted).
fn committed<'a, 'b>(batches: &'b [Batch<'a>], aborted: &[(i64, i64)]) -> Vec<&'b Batch<'a>> {
    let mut left = aborted.iter().peekable();
    let mut open = HashSet::new();
    let is_committed = |batch: &&Batch| {
        while let Some((_, producer)) = left.next_if(|(first, _)| *first <= batch.last_offset()) {
            open.insert(*producer);
        }
        let (is_transactional, is_marker) =
            (batch.attributes() & 16 != 0, batch.attributes() & 32 != 0);
        if is_marker {
            // A commit or an abort: the transaction of this producer ends here.
            open.remove(&batch.i64_at(43));
        }
        !is_marker && !(is_transactional && open.contains(&batch.i64_at(43)))
    };
    batches.iter().filter(is_committed).collect()
}

#[inline(always)]
fn blob<'a>(left: &mut &'a [u8]) -> Result<Option<&'a [u8]>> {
    match varint(left)? {
        -1 => Ok(None),
        size => left
            .split_off(..size as usize)
            .context("a record is cut off")
            .map(Some),
    }
}

#[inline(always)]
fn varint(left: &mut &[u8]) -> Result<i64> {
    let (mut raw, mut shift) = (0u64, 0);
    while shift < 64 {
        let byte = *left.split_off_first().context("a record is cut off")?;
        raw |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok((raw >> 1) as i64 ^ -((raw & 1) as i64));
        }
        shift += 7;
    }
    bail!("a number of more than 64 bits")
}

/// The reference implementation of LZ4, which decodes into one buffer that all batches of a partition use.
struct Decompressor {
    context: LZ4FDecompressionContext,
    output: Vec<u8>,
}

impl Decompressor {
    fn new() -> Result<Self> {
        let mut context = LZ4FDecompressionContext(std::ptr::null_mut());
        // SAFETY: the call fills in the context, or returns an error.
        let code = unsafe { LZ4F_createDecompressionContext(&mut context, LZ4F_VERSION) };
        ensure!(unsafe { LZ4F_isError(code) } == 0, "no memory for LZ4");
        Ok(Self {
            context,
            output: Vec::with_capacity(2 << 20),
        })
    }

    fn lz4(&mut self, mut frame: &[u8]) -> Result<&[u8]> {
        self.output.clear();
        // SAFETY: the context is valid until `drop`.
        unsafe { LZ4F_resetDecompressionContext(self.context) };
        loop {
            // With room for a block (4 MB at most), LZ4 writes to the output itself, not to a buffer of its own.
            self.output.reserve(256 << 10);
            let room = self.output.spare_capacity_mut();
            let (mut written, mut read) = (room.len(), frame.len());
            // SAFETY: the pointers and sizes are those of two slices; `written` bytes are initialized afterwards.
            let code = unsafe {
                let to = room.as_mut_ptr().cast();
                let from = frame.as_ptr();
                LZ4F_decompress(
                    self.context,
                    to,
                    &mut written,
                    from,
                    &mut read,
                    std::ptr::null(),
                )
            };
            ensure!(
                unsafe { LZ4F_isError(code) } == 0,
                "a batch that is not LZ4"
            );
            unsafe { self.output.set_len(self.output.len() + written) };
            frame = &frame[read..];
            if code == 0 {
                return Ok(&self.output);
            }
            ensure!(written + read > 0, "a batch is cut off");
        }
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: nothing uses the context afterwards.
        unsafe { LZ4F_freeDecompressionContext(self.context) };
    }
}
