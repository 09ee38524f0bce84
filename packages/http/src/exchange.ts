import type { Principal, ShardIdentifier } from '@framework/core';
import { randomUUID } from 'node:crypto';

import type { BodyReader } from './request/request-body.js';

/** The client to which a request is counted. */
export interface ServedClient {
  /** Its address, for the audit log and the limits per address. */
  readonly address: string;
  /** Whether the limits per address apply. Default true. */
  readonly isLimited?: boolean;
}

/** A request as a binding passes it on. */
export interface ServedRequest {
  /** In upper case. */
  readonly method: string;
  /** The path of its URL, without the prefix at which the API is served. */
  readonly path: string;
  readonly headers: Headers;
  /** The parameters of the path. */
  readonly params: Readonly<Record<string, string>>;
  /** Reads the query: all values of each name. */
  readonly queries: () => Readonly<Record<string, readonly string[]>>;
  readonly body: BodyReader;
  readonly client: ServedClient;
  /** Makes the signal that is aborted when the client has left before its answer was complete. */
  readonly signal: () => AbortSignal;
  /** Why it must not be served, whatever its path, such as a header that occurs twice. Default: it is well-formed. */
  readonly fault?: Error | undefined;
  /** Serves no further request of the client's connection for this long, in milliseconds. Default: does nothing. */
  readonly pause?: (durationMs: number) => void;
  /** Breaks off an answer that has begun and cannot be completed. Default: the stream of the answer fails, and the server breaks it off. */
  readonly breakOff?: () => void;
}

/** What the log says of a request's subject. */
export interface LogSubject {
  /** The name of the model. */
  readonly model: string;
  /** The name of the action that it executes, if it does. */
  readonly action?: string;
}

/** A request on its way to its answer, and what was found out about it so far. */
export class Exchange {
  readonly served: ServedRequest;
  /** Identifies the request in the log, in the answer and in the headers of its events. */
  readonly requestId: string = randomUUID();
  readonly startedMs: number = performance.now();
  principal: Principal | undefined;
  subject: LogSubject | undefined;
  /** The shards that it needs, once it is validated. */
  shards: readonly ShardIdentifier[] | undefined;
  /** Its body, once it is validated. */
  input: unknown;
  /** Whether the answer is that of an earlier request with the same idempotency key. */
  isReplayed = false;
  /** The code of its problem, if it has one. */
  problemCode: string | undefined;

  constructor(served: ServedRequest) {
    this.served = served;
  }

  get headers(): Headers {
    return this.served.headers;
  }

  /** Whether it may change something. */
  get isWrite(): boolean {
    const { method } = this.served;
    return method !== 'GET' && method !== 'HEAD' && method !== 'OPTIONS';
  }
}

/** Headers of an answer, by name in lower case. */
export type AnswerHeaders = Record<string, string>;

/** One method of one address, as an {@link HttpApi} answers it. */
export interface Endpoint {
  readonly method: string;
  /** The path, with parameters in braces. */
  readonly address: string;
  /** Whether it needs no token and is not recorded in the audit log. */
  readonly isPublic: boolean;
  /**
   * Answers a request.
   *
   * @param headers what every answer of the service has
   * @throws an error that the table of problems translates
   */
  readonly respond: (exchange: Exchange, headers: Readonly<AnswerHeaders>) => Response | Promise<Response>;
}

/** The header with the id of a request, on every answer. */
export const requestIdHeader = 'x-request-id';
