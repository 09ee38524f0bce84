import {
  type ActionExecutor,
  type DatabaseRegistry,
  type ExecutionConfiguration,
  InvariantViolationError,
} from '@framework/core';
import { actionNameOf, modelNameOf } from '@framework/core/adapter';

import type { AnswerHeaders, Endpoint, Exchange, LogSubject } from '../exchange.js';
import { ProblemError } from '../problem/problem-error.js';
import { idempotencyKey, idempotencyKeyHeader, replayedHeader } from '../request/idempotency-key.js';
import { InvalidRequestError } from '../request/invalid-request-error.js';
import { parseShape } from '../request/parse-shape.js';
import {
  entityTag,
  expectedVersions,
  isKnown,
  prefersMinimal,
  refuseUncheckedConditions,
} from '../request/preconditions.js';
import { readJsonBody } from '../request/request-body.js';
import type { ShardCapacity } from '../shard-capacity.js';
import { existingId, shardsIn } from './existing-id.js';
import { type Call, type Reply, type Route, type RouteInput } from './route.js';

/** What answers the calls of routes. */
export interface RouteServer {
  readonly executor: Pick<ActionExecutor, 'execute'>;
  readonly databases: Pick<DatabaseRegistry, 'shards'>;
  readonly capacity: ShardCapacity;
  /** Called when the answer of a handler fails after it has begun; never throws. */
  readonly onBrokenOff: (exchange: Exchange, error: unknown) => void;
}

/** Serves a route: validates its input, calls its handler, and writes the answer. */
export function serveRoute(route: Route, server: RouteServer): Endpoint {
  const { executor, databases, capacity, onBrokenOff } = server;
  const { method, address, isPublic = false, guard } = route;
  const isRead = method === 'get';
  const subject = subjectOf(route);
  const respond: Endpoint['respond'] = async (exchange, headers) => {
    exchange.subject = subject;
    const principal = exchange.principal ?? { name: 'anonymous' };
    guard?.(principal);
    const key = isRead ? undefined : idempotencyKey(exchange.headers);
    if (key !== undefined && route.action === undefined) throw withoutAction();
    const execution: ExecutionConfiguration = {
      headers: { 'request-id': exchange.requestId },
      ...(key !== undefined && {
        idempotencyKey: key,
        onReplayed: () => (exchange.isReplayed = true),
      }),
    };
    const { served } = exchange;
    const { id } = served.params;
    // Before the body is read. A request is counted only after that, because a slow client must not occupy a shard.
    if (id !== undefined) capacity.assertFree(shardsIn(id));
    const input = await inputOf(route, exchange);
    exchange.input = input.body;
    if (!isRead) refuseUncheckedConditions(exchange.headers, route.checksVersion === true);
    const versions = expectedVersions(exchange.headers);
    let hasExecuted = false;
    const call: Call = {
      ...input,
      method: served.method,
      headers: served.headers,
      signal: served.signal,
      principal,
      execution,
      expectedVersions: versions,
      execute: (action, params) => {
        if (key !== undefined && hasExecuted) throw secondUnderKey(address);
        hasExecuted = true;
        return executor.execute(principal, action, params, execution);
      },
      idOf: (model, uuid) => existingId(model, uuid, databases),
    };
    const shards = route.shards?.(input) ?? (id === undefined ? undefined : shardsIn(id));
    exchange.shards = shards;
    const reply = await (shards === undefined
      ? route.handle(call)
      : capacity.use(shards, () => route.handle(call)));
    if (reply instanceof Response) {
      const common = exchange.isReplayed ? { ...headers, [replayedHeader]: 'true' } : headers;
      return handlerAnswer(reply, common, (error) => {
        onBrokenOff(exchange, error);
        served.breakOff?.();
        return served.breakOff !== undefined;
      });
    }
    return isRead ? answerRead(exchange, reply, versions, headers) : answerWrite(exchange, reply, headers);
  };
  return { method, address, isPublic, respond };
}

function withoutAction(): InvalidRequestError {
  const message = 'is for requests that execute an action';
  return new InvalidRequestError('bad-request', `${idempotencyKeyHeader} ${message}`, {
    faults: [{ pointer: `header/${idempotencyKeyHeader}`, message }],
  });
}

/**
 * The answer that a handler has made itself, with the headers of every answer that it does not have.
 *
 * @param onFailed called when its stream fails; whether the answer was broken off then
 */
function handlerAnswer(
  answer: Response,
  common: Readonly<AnswerHeaders>,
  onFailed: (error: unknown) => boolean,
): Response {
  const { status } = answer;
  const body = answer.body && watched(answer.body, onFailed);
  const headers = new Headers(answer.headers);
  for (const [name, value] of Object.entries(common)) if (!headers.has(name)) headers.set(name, value);
  return new Response(body, { status, headers });
}

/** A stream whose failure is not left to the server: it might send the message of the error to the client. */
function watched(
  body: ReadableStream<Uint8Array>,
  onFailed: (error: unknown) => boolean,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        if (onFailed(error)) controller.close();
        else controller.error(error);
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** The answer with a body, unless its status has none. */
function jsonAnswer(status: number, body: unknown, headers: AnswerHeaders): Response {
  if (status === 204 || status === 205 || status === 304) return new Response(null, { status, headers });
  headers['content-type'] = 'application/json';
  return new Response(JSON.stringify(body), { status, headers });
}

function secondUnderKey(address: string): InvariantViolationError {
  return new InvariantViolationError(
    `The handler of ${address} executes a second action for a request with an Idempotency-Key, which belongs to one: make them one action`,
  );
}

/**
 * Reads the parts of a request that its route declares. Other parts are `undefined`, and no handler reads them.
 *
 * @throws InvalidRequestError for the first malformed part, with all its faults
 */
async function inputOf(
  { path, query, body, bodyOptional = false }: Route,
  { served, headers }: Exchange,
): Promise<RouteInput<never, never, never>> {
  return {
    path: path && parseShape('path', path, served.params),
    query: query && parseShape('query', query, singleValues(served.queries())),
    body: body && parseShape('body', body, await readJsonBody(served.body, headers, bodyOptional)),
  } as RouteInput<never, never, never>;
}

function singleValues(
  queries: Readonly<Record<string, readonly string[]>>,
): Readonly<Record<string, string | undefined>> {
  const repeated = Object.keys(queries).filter((name) => (queries[name]?.length ?? 0) > 1);
  if (repeated.length > 0) {
    const faults = repeated.map((name) => ({ pointer: `query/${name}`, message: 'occurs more than once' }));
    throw new InvalidRequestError('bad-request', 'A query parameter occurs more than once', { faults });
  }
  return Object.fromEntries(Object.entries(queries).map(([name, values]) => [name, values[0]]));
}

/** Answers a read: with nothing if the client has this version already, and not at all if it expects another one. */
function answerRead(
  { headers: sent }: Exchange,
  { status = 200, resource, body }: Reply,
  expected: readonly number[] | undefined,
  common: Readonly<AnswerHeaders>,
): Response {
  const headers = { ...common };
  if (resource !== undefined) {
    const { version } = resource;
    if (expected?.includes(version) === false) {
      const message = `The current version is ${version}, which is not among the expected ones`;
      throw new ProblemError('precondition-failed', message);
    }
    headers['etag'] = entityTag(version);
    if (isKnown(sent, version)) return new Response(null, { status: 304, headers });
  }
  return jsonAnswer(status, body, headers);
}

/** Answers a write: with the resource as it is now, unless the client does not need it. */
function answerWrite(
  { headers: sent, isReplayed }: Exchange,
  { status = 200, location, resource, body }: Reply,
  common: Readonly<AnswerHeaders>,
): Response {
  const headers = { ...common };
  if (isReplayed) headers[replayedHeader] = 'true';
  if (location !== undefined) headers['location'] = encoded(location);
  if (resource !== undefined) headers['etag'] = entityTag(resource.version);
  if (status < 400 && prefersMinimal(sent)) {
    headers['preference-applied'] = 'return=minimal';
    return new Response(null, { status: status === 200 ? 204 : status, headers });
  }
  if (resource !== undefined) headers['content-location'] = encoded(resource.address);
  return jsonAnswer(status, body, headers);
}

/** An address as a header may contain it: escapes stay as they are, and what is neither one nor allowed becomes one (RFC 3986). */
function encoded(address: string): string {
  const others = /%(?![\dA-F]{2})|[^\w\-.~:/?#[\]@!$&'()*+,;=%]/giu;
  return address.toWellFormed().replaceAll(others, (character) => encodeURIComponent(character));
}

function subjectOf({ model, action }: Route): LogSubject | undefined {
  if (model === undefined) return undefined;
  return { model: modelNameOf(model), ...(action && { action: actionNameOf(action) }) };
}
