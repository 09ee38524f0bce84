import {
  Reader,
  compressionsAlgorithms,
  crc32c,
  murmur2 as murmur2OfClient,
  readRecordsBatch,
} from '@platformatic/kafka';
import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';

import { messageFor } from '../test/broker-suite.js';
import { type KafkaRecord, batchOf, murmur2, nextRequest, recordBytes, recordOf } from './kafka-records.js';

const { none, gzip } = compressionsAlgorithms;
const stamp = { producerId: 7n, producerEpoch: 3, sequence: 41, timestampMs: 1_764_072_000_123 };
/** The limit of a request, whatever a batch may have. */
const requestBytesMax = 10_000_000;
const unlimited = (): number => Infinity;

/** A record of one partition, whose key in the log is `partitionkey`. */
function recordFor(
  key: string,
  topic = 't',
  body = '{}',
  attributes: Readonly<Record<string, string>> = {},
): KafkaRecord {
  const message = messageFor(topic, key, 1, body);
  return recordOf({ ...message, attributes: { ...message.attributes, ...attributes } }, topic, 1);
}

/** A record that has so many bytes in a batch. */
function recordOfBytes(bytes: number, key: string, topic = 't'): KafkaRecord {
  const empty = recordFor(key, topic, '');
  // The length of a longer body needs more bytes itself.
  for (let length = bytes - recordBytes(empty); ; length--) {
    const record = recordFor(key, topic, 'x'.repeat(length));
    if (recordBytes(record) <= bytes) return record;
  }
}

/** A batch as a consumer of Kafka's own client reads it. */
function readBack(records: readonly KafkaRecord[], compression: Parameters<typeof batchOf>[2] = none) {
  return readRecordsBatch(Reader.from(batchOf(records, stamp, compression)));
}

describe('a batch of records', () => {
  test('is read back with its keys, bodies, headers and numbers', () => {
    const records = ['a', 'Größe 😀', ''].map((key) =>
      recordFor(key, 't', `{"text":"${key} ü"}`, { partitionkey: key }),
    );
    const batch = readBack(records);
    expect(batch).toMatchObject({
      producerId: 7n,
      producerEpoch: 3,
      firstSequence: 41,
      lastOffsetDelta: 2,
      firstTimestamp: 1_764_072_000_123n,
      maxTimestamp: 1_764_072_000_123n,
    });
    for (const [index, { message }] of records.entries()) {
      const { key, value, headers, offsetDelta } = batch.records[index] ?? {};
      expect(offsetDelta).toBe(index);
      expect(String(key)).toBe(message.attributes['partitionkey']);
      expect(String(value)).toBe(Buffer.from(message.body).toString());
      expect(headers?.map((header) => header.map(String))).toEqual(
        Object.entries(message.attributes).map(([name, text]) => [`ce_${name}`, text]),
      );
    }
  });

  test.each([0, 1, 63, 64, 127, 128, 8_191, 8_192, 1_048_575, 1_048_576])(
    'is read back if a body, a key and a header have %i bytes',
    (length) => {
      const text = 'x'.repeat(length);
      const [record, next] = readBack([
        recordFor('a', 't', text, { partitionkey: text, subject: text }),
        recordFor('b'),
      ]).records;
      expect(record?.value?.byteLength).toBe(length);
      expect(record?.key?.byteLength).toBe(length);
      expect(record?.headers.map((header) => String(header[1]).length)).toContain(length);
      expect(String(next?.value)).toBe('{}');
    },
  );

  test('is read back if its headers have characters of two, three and four bytes', () => {
    const subject = 'üü€€😀😀'.repeat(1_000);
    const [record] = readBack([recordFor('a', 't', '{}', { subject })]).records;
    expect(
      new Map(record?.headers.map((header) => [String(header[0]), String(header[1])] as const)).get(
        'ce_subject',
      ),
    ).toBe(subject);
  });

  test('is read back if it has more records than one byte counts', () => {
    const records = Array.from({ length: 300 }, (_unused, index) => recordFor(`m${index}`));
    const { records: read } = readBack(records);
    expect(read.map(({ offsetDelta }) => offsetDelta)).toEqual(records.map((_each, index) => index));
  });

  test('has records whose lengths lead from one to the next, and from the last to its end', () => {
    const lengths = [0, 1, 50, 63, 64, 127, 128, 8_000, 8_191, 8_192];
    const records = Array.from({ length: 300 }, (_unused, index) =>
      recordFor(`m${index}`, 't', 'x'.repeat(lengths[index % lengths.length] ?? 0)),
    );
    const bytes = batchOf(records, stamp, none);
    const reader = Reader.from(bytes);
    reader.skip(61);
    let count = 0;
    for (; reader.position < bytes.byteLength; count++) reader.skip(reader.readVarInt());
    expect(reader.position).toBe(bytes.byteLength);
    expect(count).toBe(records.length);
  });

  test('is read back if it is compressed, and has the checksum of what is sent', () => {
    const records = [recordFor('a', 't', 'x'.repeat(5_000)), recordFor('b')];
    const bytes = batchOf(records, stamp, gzip);
    expect(bytes.byteLength).toBeLessThan(2_000);
    expect(bytes.readUInt32BE(17)).toBe(crc32c(bytes.subarray(21)));
    expect(bytes.readInt32BE(8)).toBe(bytes.byteLength - 12);
    expect(readBack(records, gzip).records.map(({ value }) => value?.byteLength)).toEqual([5_000, 2]);
  });

  test('has no more bytes than its records are said to have', () => {
    for (const record of [recordFor(''), recordFor('a'), recordFor('ü😀', 't', 'x'.repeat(100_000))])
      expect(batchOf([record], stamp, none).byteLength - 61).toBeLessThanOrEqual(recordBytes(record));
  });

  test('has the content type as a header of its own', () => {
    const [record] = readBack([recordFor('a', 't', '{}', { datacontenttype: 'text/json' })]).records;
    const headers = record?.headers.map((header) => header.map(String).join('='));
    expect(headers).toContain('content-type=text/json');
    expect(headers?.join()).not.toContain('datacontenttype');
  });
});

describe('the partition of a record', () => {
  test('has the hash of its key that other clients have', () => {
    const long = 'x'.repeat(2_000);
    const keys = [
      '',
      'a',
      'ab',
      'abc',
      'abcd',
      'abcde',
      'Größe 😀',
      `${long}a`,
      `${long}b`,
      randomUUID(),
      randomUUID(),
    ];
    expect(keys.map((key) => murmur2(Buffer.from(key)))).toEqual(keys.map((key) => murmur2OfClient(key)));
    expect(murmur2(Buffer.from(`${long}a`))).not.toBe(murmur2(Buffer.from(`${long}b`)));
  });

  test('is one of the topic, the same for each record of a key, and spreads the keys', () => {
    for (const partitionCount of [1, 2, 3, 7, 1_000]) {
      const partitions = Array.from({ length: 500 }, (_unused, index) => {
        const message = messageFor('t', `m${index}`, 1);
        const attributes = { ...message.attributes, partitionkey: `m${index}` };
        const [one, other] = [1, 2].map(() => recordOf({ ...message, attributes }, 't', partitionCount));
        expect(other?.partition).toBe(one?.partition);
        expect(one?.partition).toBe((murmur2OfClient(`m${index}`) & 0x7fff_ffff) % partitionCount);
        expect(one?.place).toBe(`t:${one?.partition}`);
        return one?.partition ?? -1;
      });
      expect(Math.min(...partitions)).toBeGreaterThanOrEqual(0);
      expect(Math.max(...partitions)).toBeLessThan(partitionCount);
      expect(new Set(partitions).size).toBeGreaterThan(Math.min(partitionCount, 300) / 2);
    }
  });

  test('is chosen by the key of the message, if it has no partition key', () => {
    const message = messageFor('t', 'a', 1);
    expect(String(readBack([recordOf(message, 't', 1)]).records[0]?.key)).toBe(message.key);
  });
});

describe('the next request', () => {
  test.each([
    [199, 1],
    [200, 2],
    [201, 2],
  ])('has a batch of up to its limit: of records of 100 bytes, a limit of %i takes %i', (limit, count) => {
    const size = 400;
    const records = ['a', 'b', 'c'].map((key) => recordOfBytes(size, key));
    expect(records.map(recordBytes)).toEqual([size, size, size]);
    expect(nextRequest(records, () => (limit * size) / 100)).toHaveLength(count);
  });

  test('has a record alone in its batch if it is larger than a batch may be', () => {
    const records = [recordOfBytes(500, 'a'), recordOfBytes(400, 'b'), recordOfBytes(400, 'c', 'u')];
    expect(nextRequest(records, () => 450)).toEqual([records[0], records[2]]);
  });

  test('has the limit of each topic for the batches of that topic', () => {
    const records = ['t', 'u'].flatMap((topic) =>
      ['a', 'b', 'c'].map((key) => recordOfBytes(400, topic + key, topic)),
    );
    const request = nextRequest(records, (topic) => (topic === 't' ? 400 : 1_200));
    expect(request.map(({ topic }) => topic)).toEqual(['t', 'u', 'u', 'u']);
  });

  test.each([
    [-1, 2],
    [0, 2],
    [1, 1],
  ])(
    'has as many bytes as a server reads, and not more: %i above it, so many of two records',
    (above, count) => {
      const [one, other] = [
        recordOfBytes(6_000_000, 'a'),
        recordOfBytes(requestBytesMax - 6_000_000 + above, 'b'),
      ];
      expect(recordBytes(one) + recordBytes(other)).toBe(requestBytesMax + above);
      expect(nextRequest([one, other], unlimited)).toHaveLength(count);
    },
  );

  test('has a record that is larger than a request alone', () => {
    const records = [recordOfBytes(requestBytesMax + 1, 'a'), recordFor('b')];
    expect(nextRequest(records, unlimited)).toEqual([records[0]]);
  });

  test('has a record only if the one before it of its key is in the same batch', () => {
    const a = [recordFor('a'), recordFor('a', 'u'), recordFor('a')];
    const b = [recordFor('b'), recordFor('b')];
    const records = [a[0], b[0], a[1], a[2], b[1]] as readonly KafkaRecord[];
    expect(nextRequest(records, unlimited)).toEqual([a[0], b[0], b[1]]);
  });

  test('has nothing of a key behind a record that does not fit', () => {
    const records = [
      recordOfBytes(400, 'a'),
      recordOfBytes(400, 'b'),
      recordOfBytes(300, 'b'),
      recordOfBytes(300, 'c'),
    ];
    expect(nextRequest(records, () => 750)).toEqual([records[0], records[3]]);
  });

  test('does not hold up a key that differs from another one only at its end', () => {
    const long = 'x'.repeat(5_000);
    const records = [recordFor(`${long}a`), recordFor(`${long}a`, 'u'), recordFor(`${long}b`, 'u')];
    expect(nextRequest(records, unlimited)).toEqual([records[0], records[2]]);
  });
});
