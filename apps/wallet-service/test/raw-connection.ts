import type { Socket } from 'node:net';

import { openSocket } from '../../../packages/http/test/test-tls.js';

/** Long enough for a busy machine. */
const answerTimeoutMs = 60_000;

/** One answer as it arrived. */
export interface RawAnswer {
  readonly status: number;
  /** The headers, by names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A client's connection that can send anything, and keeps all answers. */
export class RawConnection {
  readonly socket: Socket;
  readonly #answers: RawAnswer[] = [];
  readonly #methods: string[] = [];
  #received: Buffer = Buffer.alloc(0);
  #hasEnded = false;
  #onChange: () => void = () => undefined;

  private constructor(socket: Socket) {
    this.socket = socket;
    const onEnd = (): void => {
      this.#hasEnded = true;
      this.#onChange();
    };
    socket.on('data', (chunk: Buffer) => {
      this.#receive(chunk);
      this.#onChange();
    });
    socket.on('end', onEnd).on('close', onEnd);
    // Data that arrived before still counts; hasEnded shows that the server is gone.
    socket.on('error', () => undefined);
  }

  /**
   * Connects to the service at an address such as `http://127.0.0.1:8080`.
   *
   * @param localAddress the address of the client, in 127.0.0.0/8
   */
  static async open(url: string, localAddress = '127.0.0.1'): Promise<RawConnection> {
    const { socket } = await openSocket(url, { allowHalfOpen: true, localAddress });
    return new RawConnection(socket);
  }

  /** The answers that have arrived so far, in order, without `100 Continue`. */
  get answers(): readonly RawAnswer[] {
    return this.#answers;
  }

  get statuses(): readonly number[] {
    return this.#answers.map(({ status }) => status);
  }

  /** Whether the server has ended its side. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Bytes that are not a complete answer (yet). */
  get rest(): string {
    return this.#received.toString('latin1');
  }

  /** Sends a text, in UTF-8, or bytes. */
  send(bytes: string | Uint8Array): this {
    this.socket.write(bytes);
    return this;
  }

  /** Says that the next answers are to requests with these methods: an answer to HEAD has no body. */
  expecting(...methods: readonly string[]): this {
    this.#methods.push(...methods);
    return this;
  }

  /** Sends no more, but continues to read. */
  halfClose(): this {
    this.socket.end();
    return this;
  }

  /** Waits for this many answers. */
  async answered(count = 1): Promise<readonly RawAnswer[]> {
    await this.#until(() => this.#answers.length >= count);
    return this.#answers.slice(0, count);
  }

  /** Waits for this many answers, or for the end of the connection, and returns all answers. */
  async settled(count: number): Promise<readonly RawAnswer[]> {
    await this.#until(() => this.#answers.length >= count || this.#hasEnded);
    return this.#answers;
  }

  /** Waits for the end of the connection, and returns all answers. */
  async ended(): Promise<readonly RawAnswer[]> {
    await this.#until(() => this.#hasEnded);
    this.socket.destroy();
    return this.#answers;
  }

  close(): void {
    this.socket.destroy();
  }

  #until(isSo: () => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        const rest = this.rest.slice(0, 200);
        reject(
          new Error(
            `${answerTimeoutMs} ms after the last request: received ${this.statuses.join(' ')} ${rest}`,
          ),
        );
      }, answerTimeoutMs);
      this.#onChange = () => {
        if (!isSo()) return;
        clearTimeout(timer);
        resolve();
      };
      this.#onChange();
    });
  }

  #receive(chunk: Buffer): void {
    this.#received = Buffer.concat([this.#received, chunk]);
    for (;;) {
      const end = this.#received.indexOf('\r\n\r\n');
      if (end < 0) return;
      const [statusLine = '', ...lines] = this.#received.subarray(0, end).toString('latin1').split('\r\n');
      const status = Number(statusLine.split(' ')[1]);
      const headers = Object.fromEntries(
        lines.map((line) => [
          line.slice(0, line.indexOf(':')).toLowerCase(),
          line.slice(line.indexOf(':') + 1).trim(),
        ]),
      );
      const hasNoBody = status < 200 || status === 204 || this.#methods[0] === 'HEAD';
      const bodyEnd = end + 4 + (hasNoBody ? 0 : Number(headers['content-length'] ?? 0));
      if (this.#received.length < bodyEnd) return;
      const body = this.#received.subarray(end + 4, bodyEnd).toString();
      this.#received = this.#received.subarray(bodyEnd);
      if (status === 100) continue;
      this.#methods.shift();
      this.#answers.push({ status, headers, body });
    }
  }
}
