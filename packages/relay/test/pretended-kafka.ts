import { Reader, type RecordsBatch, Writer, protocolAPIsById, readRecordsBatch } from '@platformatic/kafka';
import { once } from 'node:events';
import { type AddressInfo, type Server, type Socket, createServer } from 'node:net';

/** What the server answers about a batch. Default: it takes it. */
export interface BatchAnswer {
  readonly errorCode: number;
  /** The records that are to blame, and the words about them. */
  readonly recordErrors?: readonly (readonly [index: number, message: string | null])[];
}

/** A batch as the server has got it. */
export interface ReceivedBatch {
  readonly topic: string;
  readonly partition: number;
  readonly producerId: bigint;
  /** The number of its first record. */
  readonly sequence: number;
  /** The bodies of its records. */
  readonly bodies: readonly string[];
}

/** The requests that it answers beside those to produce, by their keys, with the only version of each. */
const apis = { 3: 11, 18: 3, 22: 4 } as const;
const produce = 0;
const nodeId = 1;

/**
 * A server that speaks enough of Kafka's protocol for a producer, and answers as a test says: real ones cannot be brought to each
 * answer. All topics exist, and have one partition.
 */
export class PretendedKafka {
  readonly address: string;
  /** The batches that it has taken, in order. */
  readonly taken: ReceivedBatch[] = [];
  /** The code with which it answers questions about a topic. */
  describes: (topic: string) => number = () => 0;
  judges: (batch: ReceivedBatch) => BatchAnswer = () => ({ errorCode: 0 });
  /** The newest version of requests to produce that it takes. */
  produceVersionMax = 9;
  /** The server that leads all partitions. */
  leader: PretendedKafka = this;
  /** For how long it reads nothing from a connection after a request to produce, in milliseconds. */
  throttleMs = 0;
  /** How long it takes for a request to produce, in milliseconds. */
  produceMs = 0;
  /** How long it takes for every other request, in milliseconds. */
  otherMs = 0;
  /** Whether it leaves all requests unanswered. */
  isSilent = false;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #port: number;
  #producerCount = 0;

  private constructor(server: Server) {
    this.#server = server;
    this.#port = (server.address() as AddressInfo).port;
    this.address = `127.0.0.1:${this.#port}`;
    server.on('connection', (socket: Socket) => this.#serve(socket));
  }

  static async start(): Promise<PretendedKafka> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new PretendedKafka(server);
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('close', () => this.#sockets.delete(socket));
    socket.on('error', () => undefined);
    let received = Buffer.alloc(0);
    socket.on('data', (bytes) => {
      received = Buffer.concat([received, bytes]);
      while (received.length >= 4 && received.length >= 4 + received.readInt32BE(0)) {
        const length = received.readInt32BE(0);
        const request = received.subarray(4, 4 + length);
        const [key, version] = [request.readInt16BE(0), request.readInt16BE(2)];
        if (key === produce && version > this.produceVersionMax) {
          socket.destroy();
          return;
        }
        const answer = this.#answerTo(Reader.from(request));
        const tookMs = key === produce ? this.produceMs : this.otherMs;
        if (tookMs > 0) setTimeout(() => this.isSilent || socket.write(answer), tookMs).unref();
        else if (!this.isSilent) socket.write(answer);
        received = received.subarray(4 + length);
        if (key === produce && this.throttleMs > 0) {
          socket.pause();
          setTimeout(() => socket.resume(), this.throttleMs).unref();
        }
      }
    });
  }

  #answerTo(request: Reader): Buffer {
    const key = request.readInt16();
    request.readInt16();
    const answer = Writer.create().appendInt32(request.readInt32());
    request.readNullableString(false);
    request.readTaggedFields();
    // The head of an answer about versions has no tags, so that every client can read it.
    if (key !== 18) answer.appendTaggedFields();
    if (key === 18) this.#writeVersions(answer);
    else if (key === 3) this.#describe(request, answer);
    else if (key === 22) this.#identify(answer);
    else if (key === produce) this.#produce(request, answer);
    else throw new Error(`Nobody should ask for ${protocolAPIsById[key] ?? key}`);
    return answer.appendTaggedFields().prependLength().buffer;
  }

  #writeVersions(answer: Writer): void {
    const others = Object.entries(apis).map(([key, version]) => [Number(key), version, version] as const);
    answer
      .appendInt16(0)
      .appendArray([[produce, 3, this.produceVersionMax] as const, ...others], (api, numbers) => {
        for (const number of numbers) api.appendInt16(number);
      })
      .appendInt32(0);
  }

  #describe(request: Reader, answer: Writer): void {
    const names = request.readArray((each) => {
      each.readUUID();
      return each.readString();
    });
    answer
      .appendInt32(0)

      .appendArray([this.leader.#port], (server, port) => {
        server.appendInt32(nodeId).appendString('127.0.0.1').appendInt32(port).appendString(null);
      })
      .appendString('cluster')
      .appendInt32(nodeId)
      .appendArray(names, (topic, name) => {
        const errorCode = this.describes(name);
        topic.appendInt16(errorCode).appendString(name).appendUUID(null).appendBoolean(false);
        topic
          .appendArray(errorCode === 0 ? [0] : [], (target, partition) => {
            target.appendInt16(0).appendInt32(partition).appendInt32(nodeId).appendInt32(0);
            for (const servers of [[nodeId], [nodeId], []])
              target.appendArray(servers, (each, id) => each.appendInt32(id), true, false);
          })
          .appendInt32(0);
      });
  }

  #identify(answer: Writer): void {
    this.#producerCount += 1;
    answer.appendInt32(0).appendInt16(0).appendInt64(BigInt(this.#producerCount)).appendInt16(0);
  }

  #produce(request: Reader, answer: Writer): void {
    request.readNullableString();
    request.readInt16();
    request.readInt32();
    const topics = request.readArray((each) => ({
      topic: each.readString(),
      batches: each.readArray((part) => ({ partition: part.readInt32(), bytes: part.readBytes() })),
    }));
    answer
      .appendArray(topics, (target, { topic, batches }) => {
        target.appendString(topic).appendArray(batches, (part, { partition, bytes }) => {
          const batch = batchOf(topic, partition, readRecordsBatch(Reader.from(bytes)));
          const { errorCode, recordErrors = [] } = this.judges(batch);
          if (errorCode === 0) this.taken.push(batch);
          part.appendInt32(partition).appendInt16(errorCode).appendInt64(0n).appendInt64(-1n).appendInt64(0n);
          part
            .appendArray([...recordErrors], (record, [index, message]) => {
              record.appendInt32(index).appendString(message);
            })
            .appendString(null);
        });
      })
      .appendInt32(this.throttleMs);
  }
}

function batchOf(topic: string, partition: number, batch: RecordsBatch): ReceivedBatch {
  const { producerId, firstSequence: sequence, records } = batch;
  return { topic, partition, producerId, sequence, bodies: records.map(({ value }) => String(value)) };
}
