import { crc32c } from '@platformatic/kafka';

import type { BrokerMessage } from './broker.js';

/** A message as a record of Kafka, with the place where it goes. */
export interface KafkaRecord {
  readonly message: BrokerMessage;
  readonly topic: string;
  readonly partition: number;
  /** The partition of the topic, as `<topic>:<partition>`. */
  readonly place: string;
  /** Its key, body and headers as the protocol has them. */
  readonly content: Buffer;
}

/** What distinguishes the batches of a producer. */
export interface BatchStamp {
  readonly producerId: bigint;
  readonly producerEpoch: number;
  /** The number of its first record among those of the producer in this partition. */
  readonly sequence: number;
  readonly timestampMs: number;
}

/** How the records of a batch are compressed, and the bits that say so. */
export interface Compression {
  readonly bitmask: number;
  readonly compressSync: (records: Buffer) => Buffer;
}

/**
 * Makes the record of a message. Its key is the model's id, and its partition the one that Kafka's own clients choose for that key.
 *
 * @see https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
 */
export function recordOf(message: BrokerMessage, topic: string, partitionCount: number): KafkaRecord {
  const { attributes, body } = message;
  const key = keyOf(message);
  const partition = partitionOf(message, partitionCount);
  const names = Object.keys(attributes);
  let bytesMax = key.byteLength + body.byteLength + varintBytesMax * (3 + 2 * names.length);
  for (const name of names)
    bytesMax += headerName(name).byteLength + utf16BytesMax * (attributes[name]?.length ?? 0);
  const target = Buffer.allocUnsafe(bytesMax);
  let at = writeBytes(target, writeBytes(target, 0, key), body);
  at = writeVarint(target, at, names.length);
  for (const name of names)
    at = writeText(target, writeBytes(target, at, headerName(name)), attributes[name] ?? '');
  return { message, topic, partition, place: placeOf(topic, partition), content: target.subarray(0, at) };
}

/** The partition that Kafka's own clients choose for the key of a message. */
export function partitionOf(message: BrokerMessage, partitionCount: number): number {
  return (murmur2(keyOf(message)) & positive) % partitionCount;
}

/** The name of a partition, as `<topic>:<partition>`. */
export function placeOf(topic: string, partition: number): string {
  return `${topic}:${partition}`;
}

function keyOf({ attributes, key }: BrokerMessage): Buffer {
  return Buffer.from(attributes['partitionkey'] ?? key);
}

/** How many bytes a record has in a batch, at most. */
export function recordBytes({ content }: KafkaRecord): number {
  return content.byteLength + recordStartBytesMax;
}

/**
 * A batch of records, which the server takes as a whole.
 *
 * @see https://kafka.apache.org/documentation/#recordbatch
 */
export function batchOf(
  records: readonly KafkaRecord[],
  stamp: BatchStamp,
  { bitmask, compressSync }: Compression,
): Buffer {
  const written = writeRecords(records);
  const body = bitmask === 0 ? written : compressSync(written);
  const head = Buffer.alloc(batchHeadBytes);
  head.writeInt32BE(batchHeadBytes - lengthEnd + body.byteLength, 8);
  head.writeInt32BE(-1, 12);
  head.writeInt8(formatVersion, 16);
  head.writeInt16BE(bitmask, crcEnd);
  head.writeInt32BE(records.length - 1, 23);
  head.writeBigInt64BE(BigInt(stamp.timestampMs), 27);
  head.writeBigInt64BE(BigInt(stamp.timestampMs), 35);
  head.writeBigInt64BE(stamp.producerId, 43);
  head.writeInt16BE(stamp.producerEpoch, 51);
  head.writeInt32BE(stamp.sequence, 53);
  head.writeInt32BE(records.length, 57);
  const batch = Buffer.concat([head, body]);
  batch.writeUInt32BE(crc32c(batch.subarray(crcEnd)), 17);
  return batch;
}

/**
 * Chooses what the next request takes: the records of each partition in order, until their batch or the request is full. A record
 * waits for the one before it of the same key, unless both are in one batch.
 *
 * @param batchBytesMax how many bytes a batch of a topic may have; a larger record has a batch of its own
 */
export function nextRequest(
  waiting: readonly KafkaRecord[],
  batchBytesMax: (topic: string) => number,
): readonly KafkaRecord[] {
  const batches = new Map<string, number>();
  const places = new Map<string, string | undefined>();
  let requestBytes = 0;
  return waiting.filter((record) => {
    const { message, topic, place } = record;
    const { key } = message;
    const before = batches.get(place) ?? 0;
    const bytes = recordBytes(record);
    const follows = !places.has(key) || places.get(key) === place;
    const fitsBatch = before === 0 || before + bytes <= batchBytesMax(topic);
    const fitsRequest = requestBytes === 0 || requestBytes + bytes <= requestBytesMax;
    const goes = follows && fitsBatch && fitsRequest;
    places.set(key, goes ? place : undefined);
    if (!goes) return false;
    batches.set(place, before + bytes);
    requestBytes += bytes;
    return true;
  });
}

/**
 * The hash of a key by which Kafka's own clients choose its partition.
 *
 * @see https://github.com/apache/kafka/blob/4.2.1/clients/src/main/java/org/apache/kafka/common/utils/Utils.java
 */
export function murmur2(key: Buffer): number {
  const { byteLength } = key;
  const rest = byteLength & 3;
  let hash = 0x9747_b28c ^ byteLength;
  for (let at = 0; at < byteLength - rest; at += 4) {
    const word = Math.imul(key.readInt32LE(at), murmurFactor);
    hash = Math.imul(hash, murmurFactor) ^ Math.imul(word ^ (word >>> 24), murmurFactor);
  }
  if (rest > 0) hash = Math.imul(hash ^ key.readUIntLE(byteLength - rest, rest), murmurFactor);
  hash = Math.imul(hash ^ (hash >>> 13), murmurFactor);
  return hash ^ (hash >>> 15);
}

const murmurFactor = 0x5bd1_e995;
const positive = 0x7fff_ffff;
/** A server closes the connection on which a request has more than its `socket.request.max.bytes`, 104,857,600 by default. */
const requestBytesMax = 10_000_000;
const formatVersion = 2;
const batchHeadBytes = 61;
/** Where the head's fields end that its length and its checksum do not cover. */
const lengthEnd = 12;
const crcEnd = 21;
const varintBytesMax = 5;
/** Length, attributes, timestamp and offset in front of a record's content. */
const recordStartBytesMax = 2 * varintBytesMax + 2;
/** One unit of a string has at most so many bytes in UTF-8. */
const utf16BytesMax = 3;

function writeRecords(records: readonly KafkaRecord[]): Buffer {
  const target = Buffer.allocUnsafe(records.reduce((sum, record) => sum + recordBytes(record), 0));
  let at = 0;
  for (const [offset, { content }] of records.entries()) {
    at = writeVarint(target, at, 2 + varintBytes(offset) + content.byteLength);
    // Neither attributes, nor a difference to the timestamp of the batch.
    target.writeInt16BE(0, at);
    at = writeVarint(target, at + 2, offset);
    at += content.copy(target, at);
  }
  return target.subarray(0, at);
}

const headerNames = new Map<string, Buffer>();

function headerName(attribute: string): Buffer {
  const known = headerNames.get(attribute);
  if (known !== undefined) return known;
  const name = Buffer.from(attribute === 'datacontenttype' ? 'content-type' : `ce_${attribute}`);
  headerNames.set(attribute, name);
  return name;
}

function writeText(target: Buffer, at: number, text: string): number {
  const start = writeVarint(target, at, Buffer.byteLength(text));
  return start + target.write(text, start);
}

function writeBytes(target: Buffer, at: number, bytes: Uint8Array): number {
  const start = writeVarint(target, at, bytes.byteLength);
  target.set(bytes, start);
  return start + bytes.byteLength;
}

/** Writes a number that is not negative; its lowest bit is for the sign. */
function writeVarint(target: Buffer, at: number, value: number): number {
  let left = value * 2;
  let end = at;
  for (; left > 127; left = Math.floor(left / 128)) end = target.writeUInt8((left & 127) | 128, end);
  return target.writeUInt8(left, end);
}

function varintBytes(value: number): number {
  let count = 1;
  for (let left = value * 2; left > 127; left = Math.floor(left / 128)) count += 1;
  return count;
}
