import { EventDecoder, type LogEvent, type LogRow } from '@framework/drizzle-adapter/log';
import pgLogicalReplication from 'pg-logical-replication';
import type { Pgoutput } from 'pg-logical-replication';
import { escapeIdentifier } from 'pg';
import type pg from 'pg';

import type { StreamedTransaction } from './log-tail.js';

const { PgoutputPlugin } = pgLogicalReplication;

/** A transaction with more bytes of events is not kept: readers with SQL read it in parts. */
const transactionBytesMax = 16 * 1_048_576;

/** Memory that each row takes in addition to its texts. */
const rowOverheadBytes = 500;

/**
 * Decodes the messages of PostgreSQL's plugin `pgoutput` that concern the log, keeping every value as the server's text: parsers of
 * `pg`, which an application may replace, would lose digits.
 */
export class LogStreamPlugin extends PgoutputPlugin {
  readonly #prepare: (client: pg.Client) => Promise<void>;

  /** @param prepare called with the connection, before the stream begins */
  constructor(publication: string, prepare: (client: pg.Client) => Promise<void>) {
    // The names are a list of SQL identifiers within a literal.
    super({ protoVersion: 1, publicationNames: [escapeIdentifier(publication).replaceAll("'", "''")] });
    this.#prepare = prepare;
  }

  /** Decodes one message; one that cannot be decoded as it is becomes an {@link UndecodedMessage}. */
  override parse(buffer: Buffer): Pgoutput.Message {
    const message = this.#parse(buffer);
    // The service passes on what it gets.
    return message as Pgoutput.Message;
  }

  #parse(buffer: Buffer): Pgoutput.Message | UndecodedMessage {
    try {
      if (buffer[0] === insertTag && buffer.includes(byteOrderMark)) return { tag: 'altered' };
      const message = super.parse(buffer);
      if (message.tag === 'relation') for (const column of message.columns) column.parser = asText;
      return message;
    } catch (error) {
      return { tag: 'undecodable', error };
    }
  }

  override async start(client: pg.Client, slotName: string, lastLsn: string): Promise<unknown> {
    await this.#prepare(client);
    return super.start(client, slotName, lastLsn);
  }
}

/**
 * What stands for a message that is not decoded: `altered` if decoding would change it, `undecodable` if it fails, because the caller's
 * socket cannot handle a thrown error.
 */
type UndecodedMessage =
  { readonly tag: 'altered' } | { readonly tag: 'undecodable'; readonly error: unknown };

/** The first byte of a message with an inserted row, `I`. */
const insertTag = 0x49;
/** Decoding removes it from the beginning of a text. */
const byteOrderMark = '\uFEFF';

/** The end of a transaction in the stream. */
export interface StreamedCommit {
  /** The position behind it in the write-ahead log. */
  readonly endLsn: bigint;
  /**
   * `undefined` if it wrote nothing to the log; `left-out` if only readers with SQL get what it wrote, because it wrote more than is
   * kept, because decoding would change it, or because the server has described the log again: then the publication may have changed, and
   * lack some of its rows.
   */
  readonly transaction: StreamedTransaction | 'left-out' | undefined;
}

/** Puts the messages of a stream together to the transactions that wrote to the log. */
export class TransactionAssembler {
  readonly #epoch: number;
  readonly #decoder: EventDecoder;
  #begun: Pgoutput.MessageBegin | undefined;
  #xid: bigint | undefined;
  #rows: LogEvent[] = [];
  #bytes = 0;
  #isLeftOut = false;

  /**
   * @param epoch the epoch of the log: rows of others were copied from elsewhere
   * @param eventBytesMax larger events come without payload and params
   */
  constructor(epoch: number, eventBytesMax: number) {
    this.#epoch = epoch;
    this.#decoder = new EventDecoder(eventBytesMax);
  }

  /**
   * Takes the next message; returns something at the end of each transaction.
   *
   * @throws Error when a message cannot be decoded, or is not expected
   */
  take(message: Pgoutput.Message | UndecodedMessage): StreamedCommit | undefined {
    switch (message.tag) {
      case 'begin':
        this.#begun = message;
        [this.#xid, this.#rows, this.#bytes, this.#isLeftOut] = [undefined, [], 0, false];
        return undefined;
      case 'relation':
        if (isLog(message)) this.#isLeftOut = true;
        return undefined;
      case 'altered':
        this.#isLeftOut = true;
        return undefined;
      case 'insert':
        this.#insert(message);
        return undefined;
      case 'commit':
        return this.#commit(message);
      case 'type':
      case 'origin':
      case 'update':
      case 'delete':
      case 'truncate':
      case 'message':
        return undefined;
      default:
        throw new Error('The stream contains a message that cannot be decoded', { cause: message.error });
    }
  }

  #insert({ relation, new: row }: Pgoutput.MessageInsert): void {
    if (!isLog(relation)) return;
    const columns = row as LogRow;
    const xid = BigInt(columns['xid'] ?? 0);
    // Rows that were copied from another log have numbers of other transactions: readers with SQL decide about those.
    if (BigInt.asUintN(32, xid) !== BigInt.asUintN(32, BigInt(this.#begun?.xid ?? 0))) return;
    if (Number(columns['epoch']) !== this.#epoch) return;
    this.#xid = xid;
    if (columns['event_type'] === null) return;
    const { event, heldBytes } = this.#decoder.decode(columns);
    this.#bytes += heldBytes + rowOverheadBytes;
    if (this.#bytes > transactionBytesMax) this.#rows = [];
    else this.#rows.push(event);
  }

  #commit(message: Pgoutput.MessageCommit): StreamedCommit {
    const [xid, rows, bytes] = [this.#xid, this.#rows, this.#bytes + rowOverheadBytes];
    this.#begun = undefined;
    const [commitLsn, endLsn] = [parseLsn(message.commitLsn), parseLsn(message.commitEndLsn)];
    if (this.#isLeftOut || this.#bytes > transactionBytesMax) return { endLsn, transaction: 'left-out' };
    if (xid === undefined) return { endLsn, transaction: undefined };
    return { endLsn, transaction: { xid, commitLsn, rows, bytes } };
  }
}

function isLog({ schema, name }: Pgoutput.MessageRelation): boolean {
  return schema === 'eventlog' && name === 'events';
}

function asText(text: string): string {
  return text;
}

/** Parses a position in the write-ahead log, such as `16/B374D848`. */
export function parseLsn(text: string | null): bigint {
  const [, high, low] = /^([\dA-F]+)\/([\dA-F]+)$/i.exec(text ?? '') ?? [];
  if (high === undefined || low === undefined)
    throw new Error(`'${text}' is not a position in the write-ahead log`);
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`);
}

/** Formats a position in the write-ahead log as PostgreSQL does. */
export function formatLsn(lsn: bigint): string {
  return `${(lsn >> 32n).toString(16)}/${BigInt.asUintN(32, lsn).toString(16)}`.toUpperCase();
}
