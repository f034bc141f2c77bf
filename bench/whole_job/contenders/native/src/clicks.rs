//! The tables: JSON into Arrow arrays, those into Parquet files in memory.

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

use anyhow::Result;
use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, StructArray,
    TimestampMillisecondArray,
};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::json::Click;
use crate::topic::Record;

// So few that the arrays stay in the cache of the core until they are encoded.
const ROWS_AT_ONCE: usize = 8_192;
const HOUR_MS: i64 = 3_600_000;
// The columns with few different values. For the others, a dictionary costs more than it saves.
const REPEATING: [&str; 7] = [
    "event_type",
    "page",
    "referrer",
    "qty",
    "device.os",
    "device.ver",
    "partition",
];
// Stored as differences, or in as many bits as the range of a block needs.
const PACKED: [&str; 4] = ["user_id", "ts", "offset", "timestamp"];

/// The Parquet files of one partition: its events, and its broken records in the case "three".
pub struct PartitionFiles {
    partition: i32,
    is_three: bool,
    rows: Rows,
    events: ArrowWriter<Vec<u8>>,
    dead_offsets: Vec<i64>,
    dead_values: BinaryBuilder,
}

impl PartitionFiles {
    pub fn new(partition: i32, is_three: bool) -> Result<Self> {
        let events = ArrowWriter::try_new(Vec::new(), event_schema(), Some(properties()?))?;
        Ok(Self {
            partition,
            is_three,
            rows: Rows::default(),
            events,
            dead_offsets: Vec::new(),
            dead_values: BinaryBuilder::new(),
        })
    }

    /// Adds a record to the table that it belongs to.
    pub fn add(&mut self, record: Record, totals: &mut Totals) -> Result<()> {
        let value = record.value.unwrap_or_default();
        let Some(click) = Click::parse(value) else {
            if self.is_three {
                self.dead_offsets.push(record.offset);
                self.dead_values.append_value(value);
            }
            return Ok(());
        };
        if self.is_three {
            totals.add(&click);
        }
        self.rows.add(&click, &record);
        if self.rows.offsets.len() == ROWS_AT_ONCE {
            self.events.write(&self.rows.take(self.partition)?)?;
        }
        Ok(())
    }

    /// Returns the finished files: the events, and the broken records.
    pub fn finish(mut self) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
        self.events.write(&self.rows.take(self.partition)?)?;
        let events = self.events.into_inner()?;
        if !self.is_three {
            return Ok((events, None));
        }
        let batch = RecordBatch::try_from_iter([
            (
                "partition",
                repeated(self.partition, self.dead_offsets.len()),
            ),
            (
                "offset",
                Arc::new(Int64Array::from(self.dead_offsets)) as ArrayRef,
            ),
            ("value", Arc::new(self.dead_values.finish())),
        ])?;
        Ok((events, Some(parquet(batch)?)))
    }
}

/// The next rows of the table of events, by column.
#[derive(Default)]
struct Rows {
    event_ids: StringBuilder,
    event_types: StringBuilder,
    user_ids: Vec<i64>,
    sessions: StringBuilder,
    times: Vec<i64>,
    pages: StringBuilder,
    referrers: StringBuilder,
    prices: Vec<f64>,
    quantities: Vec<i32>,
    systems: StringBuilder,
    versions: StringBuilder,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
}

impl Rows {
    fn add(&mut self, click: &Click, record: &Record) {
        self.event_ids.append_value(&click.event_id);
        self.event_types.append_value(&click.event_type);
        self.user_ids.push(click.user_id);
        self.sessions.append_value(&click.session);
        self.times.push(click.ts);
        self.pages.append_value(&click.page);
        self.referrers.append_value(&click.referrer);
        self.prices.push(click.price);
        self.quantities.push(click.qty);
        self.systems.append_value(&click.device.os);
        self.versions.append_value(&click.device.ver);
        self.offsets.push(record.offset);
        self.timestamps.push(record.timestamp_ms);
    }

    /// Returns the rows as arrays, and begins anew.
    fn take(&mut self, partition: i32) -> Result<RecordBatch> {
        let devices: Vec<ArrayRef> = vec![strings(&mut self.systems), strings(&mut self.versions)];
        let offsets = Int64Array::from(take(&mut self.offsets));
        let partitions = repeated(partition, offsets.len());
        let timestamps = TimestampMillisecondArray::from(take(&mut self.timestamps));
        let columns: Vec<ArrayRef> = vec![
            strings(&mut self.event_ids),
            strings(&mut self.event_types),
            Arc::new(Int64Array::from(take(&mut self.user_ids))),
            strings(&mut self.sessions),
            Arc::new(Int64Array::from(take(&mut self.times))),
            strings(&mut self.pages),
            strings(&mut self.referrers),
            Arc::new(Float64Array::from(take(&mut self.prices))),
            Arc::new(Int32Array::from(take(&mut self.quantities))),
            Arc::new(StructArray::new(device_fields(), devices, None)),
            partitions,
            Arc::new(offsets),
            Arc::new(timestamps.with_timezone("UTC")),
        ];
        Ok(RecordBatch::try_new(event_schema(), columns)?)
    }
}

fn strings(builder: &mut StringBuilder) -> ArrayRef {
    Arc::new(builder.finish())
}

fn repeated(partition: i32, rows: usize) -> ArrayRef {
    Arc::new(Int32Array::from_value(partition, rows))
}

fn device_fields() -> Fields {
    ["os", "ver"]
        .map(|name| Field::new(name, DataType::Utf8, false))
        .into_iter()
        .collect()
}

fn event_schema() -> SchemaRef {
    let timestamp = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let columns = [
        ("event_id", DataType::Utf8),
        ("event_type", DataType::Utf8),
        ("user_id", DataType::Int64),
        ("session", DataType::Utf8),
        ("ts", DataType::Int64),
        ("page", DataType::Utf8),
        ("referrer", DataType::Utf8),
        ("price", DataType::Float64),
        ("qty", DataType::Int32),
        ("device", DataType::Struct(device_fields())),
        ("partition", DataType::Int32),
        ("offset", DataType::Int64),
        ("timestamp", timestamp),
    ];
    // Every valid event has every field, so no column has nulls, and no level is written.
    let fields = columns.map(|(name, kind)| Field::new(name, kind, false));
    Arc::new(Schema::new(fields.to_vec()))
}

fn properties() -> Result<WriterProperties> {
    let path = |name: &str| ColumnPath::new(name.split('.').map(String::from).collect());
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_write_batch_size(ROWS_AT_ONCE)
        .set_dictionary_enabled(false);
    for name in REPEATING {
        builder = builder.set_column_dictionary_enabled(path(name), true);
    }
    for name in PACKED {
        builder = builder.set_column_encoding(path(name), Encoding::DELTA_BINARY_PACKED);
    }
    Ok(builder.build())
}

fn parquet(batch: RecordBatch) -> Result<Vec<u8>> {
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties()?))?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

/// Number and revenue of the events by type and hour.
#[derive(Default)]
pub struct Totals(HashMap<i64, HashMap<String, (i64, f64)>>);

impl Totals {
    fn add(&mut self, click: &Click) {
        let hour = self.0.entry(click.ts / HOUR_MS).or_default();
        let revenue = click.price * f64::from(click.qty);
        match hour.get_mut(click.event_type.as_ref()) {
            Some(total) => *total = (total.0 + 1, total.1 + revenue),
            None => drop(hour.insert(click.event_type.to_string(), (1, revenue))),
        }
    }

    /// Adds the totals of another thread.
    pub fn merge(&mut self, other: Self) {
        for (hour, types) in other.0 {
            for (name, (events, revenue)) in types {
                let total = self.0.entry(hour).or_default().entry(name).or_default();
                *total = (total.0 + events, total.1 + revenue);
            }
        }
    }

    /// Returns them as a Parquet file.
    pub fn into_parquet(self) -> Result<Vec<u8>> {
        let (mut names, mut hours, mut events, mut revenues) = (vec![], vec![], vec![], vec![]);
        for (hour, types) in self.0 {
            for (name, (count, revenue)) in types {
                names.push(name);
                hours.push(hour);
                events.push(count);
                revenues.push(revenue);
            }
        }
        parquet(RecordBatch::try_from_iter([
            ("event_type", Arc::new(StringArray::from(names)) as ArrayRef),
            ("hour", Arc::new(Int64Array::from(hours))),
            ("events", Arc::new(Int64Array::from(events))),
            ("revenue", Arc::new(Float64Array::from(revenues))),
        ])?)
    }
}
