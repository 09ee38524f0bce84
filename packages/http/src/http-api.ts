import {
  type ActionExecutor,
  type DatabaseRegistry,
  InvariantViolationError,
  type Principal,
} from '@framework/core';

import { EndpointTable } from './endpoint-table.js';
import {
  type AnswerHeaders,
  type Endpoint,
  Exchange,
  type ServedClient,
  type ServedRequest,
  requestIdHeader,
} from './exchange.js';
import type { RequestLog } from './log/request-log.js';
import { docsPage } from './openapi/docs-page.js';
import { type ApiInfo, openApiDocument } from './openapi/openapi-document.js';
import { type ServedDocument, jsonDocument, serveDocument } from './openapi/served-document.js';
import type { ProblemKinds } from './problem/framework-problems.js';
import { ProblemTable, problemMediaType } from './problem/problem-table.js';
import { idempotencyKeyHeader } from './request/idempotency-key.js';
import { InvalidRequestError } from './request/invalid-request-error.js';
import { webBody } from './request/request-body.js';
import type { Route } from './route/route.js';
import { type RouteServer, serveRoute } from './route/serve-route.js';
import type { AuditEntry } from './security/audit-log.js';
import { ShardCapacity } from './shard-capacity.js';

/** A client has sent more requests than it may. */
interface RateRefusal extends Error {
  readonly retryAfterMs: number;
}

/** A service over HTTP. */
export interface HttpApiOptions {
  /** Its name in the types of its problems, such as `wallet-service`. */
  readonly name: string;
  readonly info: ApiInfo;
  readonly routes: readonly Route[];
  /**
   * The problems of the application, by name: an error whose `code` is one of them ends a request with it, and a missing model has
   * `<model>-not-found`. Default: none.
   */
  readonly problems?: ProblemKinds;
  /** Executes the actions of routes. Default: no route has one. */
  readonly executor?: Pick<ActionExecutor, 'execute'>;
  /** The configured shards, for the ids in requests. Default: none. */
  readonly databases?: Pick<DatabaseRegistry, 'shards'>;
  /** Finds out who sends a request. Default: every request is that of {@link principal}. */
  readonly authentication?:
    | {
        principalOf(headers: Headers): Promise<Principal>;
        /** The format of its tokens, for the document. Default `JWT`. */
        readonly bearerFormat?: string;
      }
    | undefined;
  /** The principal of all requests without authentication. Default: one with the name of the service. */
  readonly principal?: Principal;
  /** Limits how many requests an address and a principal may send. Default: nothing does. */
  readonly rates?: {
    refusal(subject: 'address' | 'principal', client: string): Promise<RateRefusal | undefined>;
  };
  /** How many requests a shard has at the same time. Default 512. */
  readonly capacity?: ShardCapacity;
  /** Records requests that may change something. Default: nothing does. */
  readonly audit?: { record(attempt: () => Promise<AuditEntry>): Promise<void> } | undefined;
  /** What sees all requests and problems, such as a `RequestLog`. Default: nothing does. */
  readonly log?: Pick<RequestLog, 'answered' | 'problem'>;
  /** Documents besides `/openapi.json`. Default: none. */
  readonly documents?: readonly ServedDocument[];
  /** Whether to serve `/docs`, a page for reading and trying the API; it needs `swagger-ui-dist`. Default false. */
  readonly docs?: boolean;
  /** Whether every path needs a token: also the documents, and paths at which there is nothing. Default false. */
  readonly isPrivate?: boolean;
  /** Whether it is served over TLS, so that browsers use nothing else for a year. Default false. */
  readonly encrypted?: boolean;
}

const requestsPerShardMax = 512;
/** The maximum number of bytes in the body of a web request. */
const bodyBytesMax = 65_536;

/**
 * Answers requests: validates them against their routes, executes actions, and turns results and errors into answers.
 *
 * A binding registers {@link endpoints} with a framework for HTTP. Whatever happens, a request has an answer with an id.
 */
export class HttpApi {
  readonly #options: HttpApiOptions;
  readonly #problems: ProblemTable;
  readonly #principal: Principal;
  readonly #headers: Readonly<AnswerHeaders>;
  readonly #routes: readonly Route[];
  readonly #table: EndpointTable;

  constructor(options: HttpApiOptions) {
    const { name, info, routes, problems = {}, principal = { name } } = options;
    const { documents = [], docs = false, encrypted = false, isPrivate = false } = options;
    this.#options = options;
    this.#problems = new ProblemTable(name, problems);
    this.#principal = principal;
    this.#headers = commonHeaders(encrypted);
    this.#routes = routes;
    const { capacity = new ShardCapacity(requestsPerShardMax), databases = { shards: [] } } = options;
    const onBrokenOff: RouteServer['onBrokenOff'] = (exchange, error) =>
      silently(() => options.log?.problem(exchange, this.#problems.of(error), error));
    const server = { executor: options.executor ?? noExecutor, databases, capacity, onBrokenOff };
    const openApi = jsonDocument('/openapi.json', () => this.openApi());
    const endpoints = [
      ...this.#routes.map((each) => serveRoute(each, server)),
      ...[openApi, ...documents, ...(docs ? docsPage(info.title) : [])].map((each) =>
        serveDocument({ isPublic: !isPrivate, ...each }),
      ),
    ];
    this.#table = new EndpointTable(endpoints);
  }

  /** What a binding registers: literal segments come before parameters. */
  get endpoints(): readonly Endpoint[] {
    return this.#table.endpoints;
  }

  /**
   * Answers a web request, for servers without a router. Never rejects.
   *
   * @param client Default: one whose address is unknown
   */
  async fetch(request: Request, client: ServedClient = { address: 'unknown' }): Promise<Response> {
    const { pathname, searchParams } = new URL(request.url);
    const found = this.#table.find(request.method, pathname);
    const served: ServedRequest = {
      method: request.method,
      path: pathname,
      headers: request.headers,
      params: found?.params ?? {},
      queries: () =>
        Object.fromEntries([...searchParams.keys()].map((name) => [name, searchParams.getAll(name)])),
      body: webBody(request, bodyBytesMax),
      client,
      signal: () => request.signal,
    };
    const answer = await (found === undefined
      ? this.answerUnmatched(served)
      : this.answer(found.endpoint, served));
    if (request.method !== 'HEAD') return answer;
    answer.body?.cancel().catch(() => undefined);
    return new Response(null, answer);
  }

  /** Answers a request to an endpoint. Never rejects. */
  async answer(endpoint: Endpoint, served: ServedRequest): Promise<Response> {
    const { audit, log } = this.#options;
    const exchange = new Exchange(served);
    let response: Response | undefined;
    try {
      await this.#assertRate(exchange, 'address');
      if (served.fault !== undefined) throw served.fault;
      if (audit === undefined || endpoint.isPublic || !exchange.isWrite)
        response = await this.#respond(endpoint, exchange);
      else
        await audit.record(async () => {
          response = await this.#respond(endpoint, exchange);
          return auditEntry(exchange, response.status);
        });
    } catch (error) {
      response ??= this.#problem(exchange, error);
    }
    const answer = response ?? this.#problem(exchange, new Error('The request was not answered'));
    silently(() => log?.answered(exchange, answer.status));
    return answer;
  }

  /** Answers a request to which no endpoint fits: with the methods of its path, or that there is nothing. Never rejects. */
  answerUnmatched(served: ServedRequest): Promise<Response> {
    const { path, method } = served;
    const methods = this.#table.methodsOf(path);
    const allow = methods.length > 0 ? [...methods, 'OPTIONS'].join(', ') : undefined;
    const isOptions = method === 'OPTIONS';
    const respond: Endpoint['respond'] = (_exchange, headers) => {
      if (allow === undefined)
        throw new InvalidRequestError('not-found', `${this.#guide} lists what is available`);
      if (isOptions) {
        return new Response(null, { status: 204, headers: { ...headers, allow } });
      }
      throw new InvalidRequestError('method-not-allowed', `${method} is not supported: use ${allow}`, {
        headers: { allow },
      });
    };
    // OPTIONS only lists methods, and browsers send it without a token.
    const isProtected = this.#options.isPrivate === true || this.#table.isProtected(path);
    const isPublic = isOptions || !isProtected;
    return this.answer({ method, address: path, isPublic, respond }, served);
  }

  /**
   * Answers input that never becomes a request, such as headers that are too large, and returns what to log of it.
   *
   * @param givenStatus the status from 400 to 599 that another library has given the error. Default: none
   */
  refuse(error: unknown, givenStatus?: number): { readonly response: Response; readonly fields: object } {
    const known = this.#problems.of(error);
    const isGiven = known.name === 'internal' && givenStatus !== undefined && givenStatus >= 400;
    const problem = isGiven ? this.#problems.ofStatus(givenStatus, error) : known;
    const requestId = crypto.randomUUID();
    const { status, detail: reason } = problem;
    return {
      response: this.#problemResponse(problem, requestId),
      fields: { requestId, status, reason },
    };
  }

  /** The OpenAPI 3.1 document of the service. */
  openApi(): object {
    const { info, authentication } = this.#options;
    return openApiDocument(this.#routes, {
      info,
      problems: this.#problems,
      bearerFormat: authentication && (authentication.bearerFormat ?? 'JWT'),
    });
  }

  get #guide(): string {
    return this.#options.docs === true ? '/docs' : '/openapi.json';
  }

  async #respond(endpoint: Endpoint, exchange: Exchange): Promise<Response> {
    try {
      if (!endpoint.isPublic) await this.#authenticate(exchange);
      const headers = { ...this.#headers, [requestIdHeader]: exchange.requestId };
      return await endpoint.respond(
        exchange,
        endpoint.isPublic ? headers : { ...headers, 'cache-control': 'no-store' },
      );
    } catch (error) {
      return this.#problem(exchange, error);
    }
  }

  async #authenticate(exchange: Exchange): Promise<void> {
    const { authentication } = this.#options;
    if (authentication === undefined) {
      exchange.principal = this.#principal;
      return;
    }
    const caller = await authentication.principalOf(exchange.headers);
    await this.#assertRate(exchange, 'principal', caller.name);
    exchange.principal = caller;
  }

  async #assertRate(exchange: Exchange, subject: 'address' | 'principal', name?: string): Promise<void> {
    const { client, pause } = exchange.served;
    if (subject === 'address' && client.isLimited === false) return;
    const refusal = await this.#options.rates?.refusal(subject, name ?? client.address);
    if (refusal === undefined) return;
    pause?.(refusal.retryAfterMs);
    throw refusal;
  }

  #problem(exchange: Exchange, error: unknown): Response {
    const problem = this.#problems.of(error);
    exchange.problemCode = problem.code;
    silently(() => this.#options.log?.problem(exchange, problem, error));
    return this.#problemResponse(problem, exchange.requestId);
  }

  #problemResponse(problem: ReturnType<ProblemTable['of']>, requestId: string): Response {
    const { status, headers, retryAfterSeconds } = problem;
    const own = Object.entries(headers).filter(([, value]) => isHeaderValue(value));
    return new Response(JSON.stringify(this.#problems.body(problem, requestId)), {
      status,
      headers: {
        ...this.#headers,
        'content-type': problemMediaType,
        'cache-control': 'no-store',
        [requestIdHeader]: requestId,
        ...Object.fromEntries(own),
        ...(retryAfterSeconds !== undefined && { 'retry-after': String(retryAfterSeconds) }),
      },
    });
  }
}

/** A log that fails must not change an answer: what was committed would look as if it had failed. */
function silently(log: () => void): void {
  try {
    log();
  } catch {
    // The line is lost.
  }
}

function isHeaderValue(value: string): boolean {
  return /^[\t\x20-\x7e\x80-\xff]*$/.test(value);
}

const noExecutor: NonNullable<HttpApiOptions['executor']> = {
  execute: () => {
    throw new InvariantViolationError(
      'A route executes an action, but the HttpApi has no executor: pass one',
    );
  },
};

/** How long a browser uses HTTPS only, in seconds: a year, as the lists of browsers require. */
const httpsOnlySeconds = 31_536_000;

/** The headers that tell browsers how to treat answers, which are data. A page sets its own policy. */
function commonHeaders(encrypted: boolean): Readonly<AnswerHeaders> {
  return {
    'content-security-policy': "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    'cross-origin-resource-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    ...(encrypted && { 'strict-transport-security': `max-age=${httpsOnlySeconds}` }),
  };
}

function auditEntry(exchange: Exchange, status: number): AuditEntry {
  const { served, requestId, principal, headers, input, problemCode, isReplayed } = exchange;
  return {
    time: new Date(Date.now()),
    requestId,
    principal: principal?.name ?? null,
    address: served.client.address,
    request: `${served.method} ${served.path}`,
    idempotencyKey: headers.get(idempotencyKeyHeader),
    input: input ?? null,
    status,
    code: problemCode ?? null,
    replayed: isReplayed,
  };
}
