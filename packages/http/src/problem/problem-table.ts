import {
  EntityNotFoundError,
  type ErrorCode,
  FrameworkError,
  type ShardIdentifier,
  ShardUnavailableError,
  TransientStorageError,
  UnknownShardError,
} from '@framework/core';
import { STATUS_CODES } from 'node:http';
import * as z from 'zod';

import { notConfigured, shardCauses } from '../health/shard-causes.js';
import { ShardBusyError } from '../shard-capacity.js';
import {
  type FrameworkProblem,
  type ProblemKind,
  type ProblemKinds,
  frameworkProblems,
} from './framework-problems.js';
import { ProblemError, type RequestFault } from './problem-error.js';

/** A problem as it is answered. */
export interface Problem extends ProblemKind {
  /** The name of its kind. */
  readonly name: string;
  readonly code: string;
  readonly detail: string;
  readonly faults: readonly RequestFault[];
  /** Further headers of the answer. */
  readonly headers: Readonly<Record<string, string>>;
}

/** The client's view of the framework's errors. The others are internal, because a client cannot cause them. */
const problemOfCode: Readonly<Partial<Record<ErrorCode, FrameworkProblem>>> = {
  'stale-record': 'stale-record',
  'transient-storage': 'shard-unavailable',
  'shard-unavailable': 'shard-unavailable',
  'databases-closed': 'shard-unavailable',
  'commit-outcome-unknown': 'outcome-unknown',
  'entity-not-found': 'not-found',
  'access-denied': 'forbidden',
  'invalid-cursor': 'bad-request',
  'invalid-page-limit': 'bad-request',
  'invalid-idempotency-key': 'bad-request',
  'idempotency-key-reused': 'idempotency-key-reused',
  // Ids in requests are checked earlier. What remains is a new model's shard that is missing from this process's
  // configuration.
  'unknown-shard': 'shard-unavailable',
};

/** The media type of problem details (RFC 9457). */
export const problemMediaType = 'application/problem+json';

/** Every problem that a service answers with: the only place that maps errors to statuses. */
export class ProblemTable {
  /** The schema of an error's body: problem details (RFC 9457) with a code to branch on. */
  readonly schema: z.ZodType;
  readonly #service: string;
  readonly #own: ProblemKinds;
  readonly #kinds: ProblemKinds;

  /**
   * @param service the name of the service, in the `type` of its problems
   * @param own the problems of the application, by name. An error whose `code` is one of these names ends a request with it. They may
   * replace the texts of problems that every service has
   */
  constructor(service: string, own: ProblemKinds) {
    this.#service = service;
    this.#own = own;
    this.#kinds = { ...frameworkProblems, ...own };
    this.schema = problemSchema(service, { ...own, ...this.#kinds });
  }

  /** The kind of problem with this name. */
  kind(name: string): ProblemKind {
    return this.#kinds[name] ?? frameworkProblems.internal;
  }

  /** Translates an error into the problem that the client receives. */
  of(error: unknown): Problem {
    const name = this.#nameOf(error);
    const kind = this.kind(name);
    const {
      faults,
      headers,
      retryAfterSeconds = kind.retryAfterSeconds,
    } = error instanceof ProblemError ? error : { faults: faultsOf(error, name), headers: {} };
    return {
      ...kind,
      name,
      code: kind.code ?? name,
      detail: shardDetail(error) ?? kind.detail ?? (error instanceof Error ? error.message : kind.title),
      faults,
      headers,
      ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
    };
  }

  /**
   * The problem of an error that another library has given a status, such as an exception of NestJS or of a plugin of Fastify. Its message
   * is for the client if the status says that the client is to blame.
   */
  ofStatus(status: number, error: unknown): Problem {
    const title = STATUS_CODES[status] ?? 'Error';
    const code = title.toLowerCase().replaceAll(/[^a-z]+/g, '-');
    const detail = status < 500 && error instanceof Error ? error.message : frameworkProblems.internal.detail;
    return { name: code, code, status, title, detail, faults: [], headers: {} };
  }

  /** The body of the answer to a problem. */
  body(problem: Problem, requestId: string): object {
    const { name, title, status, detail, code, faults } = problem;
    return {
      type: `urn:problem-type:${this.#service}:${name}`,
      title,
      status,
      detail,
      code,
      instance: `urn:uuid:${requestId}`,
      ...(faults.length > 0 && { errors: faults }),
    };
  }

  #nameOf(error: unknown): string {
    const code = codeOf(error);
    if (code !== undefined && Object.hasOwn(this.#own, code)) return code;
    if (error instanceof ProblemError)
      return Object.hasOwn(this.#kinds, error.code) ? error.code : 'internal';
    const known = FrameworkError.find(error);
    if (known !== undefined && Object.hasOwn(this.#own, known.code)) return known.code;
    if (known instanceof EntityNotFoundError) {
      const name = `${kebabCase(known.model)}-not-found`;
      if (Object.hasOwn(this.#own, name)) return name;
    }
    return (known && problemOfCode[known.code]) ?? 'internal';
  }
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}

function kebabCase(name: string): string {
  return name.replaceAll(/(?<=[a-z\d])(?=[A-Z])/g, '-').toLowerCase();
}

function faultsOf(error: unknown, name: string): readonly RequestFault[] {
  const known = FrameworkError.find(error);
  return name === 'bad-request' && known?.code === 'invalid-cursor'
    ? [{ pointer: 'query/cursor', message: known.message }]
    : [];
}

/** Which shard is unavailable and why, if the error is about that. */
function shardDetail(error: unknown): string | undefined {
  const known = FrameworkError.find(error);
  const why = known && whyUnavailable(known);
  if (why === undefined) return undefined;
  return `${sentence(why.shard.toString())} is unavailable: ${why.what}. Nothing was written; try again later.`;
}

function whyUnavailable(
  error: FrameworkError,
): { readonly shard: ShardIdentifier; readonly what: string } | undefined {
  if (error instanceof UnknownShardError) return { shard: error.shard, what: `it is ${notConfigured}` };
  if (error instanceof TransientStorageError) {
    const what = 'the connection to its database was lost, or the change conflicted with others';
    return { shard: error.shard, what };
  }
  if (!(error instanceof ShardUnavailableError)) return undefined;
  const { shard, kind } = error;
  if (kind === 'locked') return { shard, what: 'another session holds a lock on the row to be changed' };
  if (kind === 'damaged') return { shard, what: 'its disk has failed, or its data is damaged' };
  if (kind !== undefined) return { shard, what: shardCauses[kind].what };
  if (error instanceof ShardBusyError) return { shard, what: error.reason };
  return { shard, what: 'it is overloaded, or does not answer in time' };
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function problemSchema(service: string, kinds: ProblemKinds): z.ZodType {
  const codes = [...new Set(Object.entries(kinds).map(([name, { code }]) => code ?? name))];
  const [name, example] = Object.entries(kinds).find(([, { status }]) => status === 422) ?? [
    'bad-request',
    frameworkProblems['bad-request'],
  ];
  return z
    .object({
      type: z.string().meta({ example: `urn:problem-type:${service}:${name}` }),
      title: z.string().meta({ example: example.title }),
      status: z.int().meta({ example: example.status }),
      detail: z.string().meta({ description: 'What happened this time.' }),
      code: z.enum(codes as [string, ...string[]]).meta({
        description: 'The code to branch on. A later version may have more of them.',
        example: name,
      }),
      instance: z.string().meta({
        description: 'Identifies this occurrence by the id of the request, which also appears in the log.',
        example: 'urn:uuid:5f0c7f0e-6a3c-4f0e-9a53-2f6d5c8e1b7a',
      }),
      errors: z
        .array(
          z.object({
            pointer: z.string().meta({
              description:
                'A JSON pointer into the body, or `path/…`, `query/…` or `header/…` with the name of a parameter.',
              example: '#/amount',
            }),
            message: z.string(),
          }),
        )
        .readonly()
        .optional()
        .meta({ description: 'The faults and their positions, when the request is malformed.' }),
    })
    .meta({ id: 'Problem' });
}
