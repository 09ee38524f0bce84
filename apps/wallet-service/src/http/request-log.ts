import { FrameworkError, ShardIdentifier } from '@framework/core';
import type { Context } from 'hono';
import type { Logger } from 'pino';

import { errorReason, errorStack } from '../process/log-format.js';
import { logMessages } from '../process/log-messages.js';
import { RepeatedFailures } from '../process/repeated-failures.js';
import { UnauthorizedError } from '../security/authentication.js';
import type { Problem } from './problem-of.js';
import type { WalletEnv } from './wallet-app-env.js';

/** Without a refusal for so long, in milliseconds, the reasons of refusals are told again when they come back. */
const quietMs = 60_000;
/** Requests are served again when one is served and none was refused for so long, in milliseconds. */
const settledMs = 3_000;

/** What refusals have in common: a shard that is away, or a code such as `keys-unavailable`. */
type Refused = { readonly shard: string } | { readonly code: string };

/**
 * Logs requests: never their bodies, queries, headers and callers.
 *
 * Refusals that are not the caller's have a line for each reason, and one with their number when requests are served again, however many
 * requests there are.
 */
export class RequestLog {
  readonly #logger: Logger;
  readonly #refusals: RepeatedFailures<Refused>;
  /** Those by which writes are refused, perhaps only writes: reads that are served do not end them. */
  readonly #ofWrites = new Set<string>();

  constructor(logger: Logger) {
    this.#logger = logger;
    this.#refusals = new RepeatedFailures(({ subject, count, durationMs }) => {
      this.#ofWrites.delete('shard' in subject ? subject.shard : subject.code);
      logger.info({ ...subject, refusedCount: count, durationMs }, logMessages.requestsServed);
    }, 'forget reasons');
  }

  /** Must be called with every request that has its answer. */
  answered(context: Context<WalletEnv>, tookMs: number): void {
    const { status } = context.res;
    this.#logger.debug(
      { ...requestOf(context), status, durationMs: Math.round(tookMs) },
      logMessages.request,
    );
    if (this.#refusals.isAny && status < 400) this.#served(context);
  }

  /** Logs what operators need to know about a problem, with the request id that the client received. */
  problem(context: Context<WalletEnv>, { name, code, status }: Problem, error: unknown): void {
    const request = { ...requestOf(context), status };
    if (error instanceof UnauthorizedError)
      this.#logger.info({ ...request, reason: error.reason }, logMessages.unauthorized);
    else if (status === 403 || status === 429)
      this.#logger.info({ ...request, code }, logMessages.requestRefused);
    if (status < 500) return;
    const known = FrameworkError.find(error);
    const { shards, subject } = setIn(context);
    const shard = (shardOf(known) ?? shards)?.join(', ');
    const details = { ...request, code: known?.code ?? code, shard, ...subject };
    if (status === 500) {
      this.#logger.error({ ...details, stack: errorStack(error) }, logMessages.internalError);
      return;
    }
    const reason = errorReason(error);
    const isOfShard = shard !== undefined && (name === 'shard-unavailable' || name === 'outcome-unknown');
    // Each unknown outcome names its own action.
    const kind = name === 'outcome-unknown' ? name : reason;
    if (this.#refused(isOfShard ? { shard } : { code: name }, context.req.method, kind))
      this.#logger.warn({ ...details, reason }, logMessages.requestsRefused);
  }

  #refused(subject: Refused, method: string, reason: string): boolean {
    const key = 'shard' in subject ? subject.shard : subject.code;
    if (method === 'POST') this.#ofWrites.add(key);
    return this.#refusals.failed(key, subject, reason, quietMs);
  }

  /** Ends the refusals because of what an answered request has used. */
  #served(context: Context<WalletEnv>): void {
    const { shards = [], principal } = setIn(context);
    const isWrite = context.req.method === 'POST';
    const used = [
      ...shards.map(String),
      ...(principal === undefined ? [] : ['keys-unavailable']),
      ...(isWrite ? ['audit-unavailable'] : []),
    ];
    for (const key of used) if (isWrite || !this.#ofWrites.has(key)) this.#refusals.succeeded(key, settledMs);
  }
}

/** What was set before the request was refused. */
function setIn(context: Context<WalletEnv>): Partial<WalletEnv['Variables']> {
  return context.var;
}

function requestOf({ req: { method, path }, var: { requestId } }: Context<WalletEnv>): {
  readonly requestId: string;
  readonly method: string;
  readonly path: string;
} {
  return { requestId, method, path };
}

/** The shard that an error is about. */
function shardOf(error: FrameworkError | undefined): readonly ShardIdentifier[] | undefined {
  return error !== undefined && 'shard' in error && error.shard instanceof ShardIdentifier
    ? [error.shard]
    : undefined;
}
