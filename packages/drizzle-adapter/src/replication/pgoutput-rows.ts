import pgLogicalReplication from 'pg-logical-replication';
import type { Pgoutput } from 'pg-logical-replication';
import type pg from 'pg';

import { EventRow, type StreamedTexts, streamedTexts } from '../read/event-row.js';
import type { StreamedTransaction } from './log-tail.js';

const { PgoutputPlugin } = pgLogicalReplication;

/** The server's run to which a session belongs. */
const historyText = 'select eventlog.server_history() as history';

/** A transaction with more bytes of events is not kept: readers with SQL read it in parts. */
const transactionBytesMax = 16 * 1_048_576;

/** Memory that each row takes in addition to its texts. */
const rowOverheadBytes = 500;

/**
 * Decodes the messages of PostgreSQL's plugin `pgoutput` that concern the log, keeping every value as the server's text: parsers of
 * `pg`, which an application may replace, would lose digits.
 */
export class LogStreamPlugin extends PgoutputPlugin {
  /** The history of the server that streams; empty until the stream begins. */
  history = '';

  constructor(publication: string) {
    super({ protoVersion: 1, publicationNames: [publication] });
  }

  /** Decodes one message; a message that cannot be decoded becomes an error, because the caller's socket cannot handle a thrown one. */
  override parse(buffer: Buffer): Pgoutput.Message {
    try {
      const message = super.parse(buffer);
      if (message.tag === 'relation') for (const column of message.columns) column.parser = asText;
      return message;
    } catch (error) {
      return { tag: 'undecodable', error } as unknown as Pgoutput.Message;
    }
  }

  override async start(client: pg.Client, slotName: string, lastLsn: string): Promise<unknown> {
    const { rows } = await client.query<{ history: string }>(historyText);
    this.history = rows[0]?.history ?? '';
    return super.start(client, slotName, lastLsn);
  }
}

/** The end of a transaction in the stream. */
export interface StreamedCommit {
  /** The position behind it in the write-ahead log. */
  readonly endLsn: bigint;
  /** `undefined` if it wrote nothing to the log, `too-large` if it wrote more than is kept. */
  readonly transaction: StreamedTransaction | 'too-large' | undefined;
}

/** Puts the messages of a stream together to the transactions that wrote to the log. */
export class TransactionAssembler {
  readonly #epoch: number;
  readonly #eventBytesMax: number;
  readonly #intern = new Map<string, string>();
  #begun: Pgoutput.MessageBegin | undefined;
  #xid: bigint | undefined;
  #rows: EventRow[] = [];
  #bytes = 0;

  /**
   * @param epoch the epoch of the log: rows of others were copied from elsewhere
   * @param eventBytesMax larger events come without payload and params
   */
  constructor(epoch: number, eventBytesMax: number) {
    this.#epoch = epoch;
    this.#eventBytesMax = eventBytesMax;
  }

  /**
   * Takes the next message; returns something at the end of each transaction.
   *
   * @throws Error when a message cannot be decoded, or is not expected
   */
  take(message: Pgoutput.Message): StreamedCommit | undefined {
    switch (message.tag) {
      case 'begin':
        this.#begun = message;
        [this.#xid, this.#rows, this.#bytes] = [undefined, [], 0];
        return undefined;
      case 'insert':
        this.#insert(message);
        return undefined;
      case 'commit':
        return this.#commit(message);
      case 'relation':
      case 'type':
      case 'origin':
      case 'update':
      case 'delete':
      case 'truncate':
      case 'message':
        return undefined;
      default:
        throw new Error('The stream contains a message that cannot be decoded', {
          cause: (message as { readonly error?: unknown }).error,
        });
    }
  }

  #insert({ relation, new: row }: Pgoutput.MessageInsert): void {
    if (relation.schema !== 'eventlog' || relation.name !== 'events') return;
    const columns = row as StreamedTexts;
    const xid = BigInt(columns['xid'] ?? 0);
    // Rows that were copied from another log have numbers of other transactions: readers with SQL decide about those.
    if (BigInt.asUintN(32, xid) !== BigInt.asUintN(32, BigInt(this.#begun?.xid ?? 0))) return;
    if (Number(columns['epoch']) !== this.#epoch) return;
    this.#xid = xid;
    if (columns['event_type'] === null) return;
    const { texts, heldBytes } = streamedTexts(columns, this.#eventBytesMax);
    this.#bytes += heldBytes + rowOverheadBytes;
    if (this.#bytes > transactionBytesMax) this.#rows = [];
    else this.#rows.push(new EventRow(texts, this.#internName, this.#eventBytesMax));
  }

  #commit(message: Pgoutput.MessageCommit): StreamedCommit {
    const [xid, rows, bytes] = [this.#xid, this.#rows, this.#bytes + rowOverheadBytes];
    this.#begun = undefined;
    const [commitLsn, endLsn] = [parseLsn(message.commitLsn), parseLsn(message.commitEndLsn)];
    if (xid === undefined) return { endLsn, transaction: undefined };
    if (this.#bytes > transactionBytesMax) return { endLsn, transaction: 'too-large' };
    return { endLsn, transaction: { xid, commitLsn, rows, bytes } };
  }

  /** Limited in size, because there may be many principals. */
  readonly #internName = (name: string): string => {
    const known = this.#intern.get(name);
    if (known !== undefined) return known;
    if (this.#intern.size >= namesMax) this.#intern.clear();
    this.#intern.set(name, name);
    return name;
  };
}

const namesMax = 1_000;

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
