import {
  type ArgumentsHost,
  Controller,
  type DynamicModule,
  type ExceptionFilter,
  HttpException,
  Req,
  RequestMapping,
  RequestMethod,
  Res,
} from '@nestjs/common';
import { InvariantViolationError } from '@framework/core';
import type { IncomingMessage, ServerResponse } from 'node:http';

import type { Endpoint } from './exchange.js';
import type { HttpApi } from './http-api.js';
import { type AnswerReply, nodeRequest, sendReply, sendResponse } from './node-request.js';
import { ProblemError } from './problem/problem-error.js';

/** A request of Express, or one of Fastify, which has that of Node in `raw`. */
interface NestRequest {
  readonly raw?: IncomingMessage;
  readonly url: string;
  readonly originalUrl?: string;
  readonly params?: Readonly<Record<string, string>>;
  readonly ip?: string;
  readonly body?: unknown;
  readonly rawBody?: Uint8Array;
}

/** A response of Express, which is that of Node, or a reply of Fastify. */
type NestResponse = ServerResponse | (AnswerReply & { readonly raw: ServerResponse });

/** How a module serves an API. */
export interface HttpApiModuleOptions {
  /** The path before all addresses, such as `v1`; `setGlobalPrefix` adds its own. Default: none. */
  readonly prefix?: string;
}

/**
 * A NestJS module that serves an {@link HttpApi}: `imports: [HttpApiModule.forRoot(api)]`.
 *
 * Each endpoint is a method of a controller, so that guards, interceptors and middleware of the application apply. Create the application
 * with `{ rawBody: true }`, or with `{ bodyParser: false }` if nothing else reads bodies: numbers are exact only in the bytes of a body.
 */
// oxlint-disable-next-line typescript/no-extraneous-class -- a module of NestJS is a class
export class HttpApiModule {
  /** The module of an API. */
  static forRoot(api: HttpApi, options: HttpApiModuleOptions = {}): DynamicModule {
    return { module: HttpApiModule, controllers: [controllerOf(api, options)] };
  }
}

function controllerOf(api: HttpApi, { prefix = '' }: HttpApiModuleOptions): new () => object {
  // oxlint-disable-next-line typescript/no-extraneous-class -- its methods are made from the endpoints
  class HttpApiController {}
  for (const [index, endpoint] of api.endpoints.entries()) {
    const name = `${endpoint.method}${index}`;
    const value = (request: NestRequest, response: NestResponse): Promise<void> =>
      answer(api, endpoint, request, response);
    const descriptor = { value, configurable: true, writable: true };
    Object.defineProperty(HttpApiController.prototype, name, descriptor);
    RequestMapping({
      method: RequestMethod[endpoint.method.toUpperCase() as keyof typeof RequestMethod],
      path: endpoint.address.replaceAll(/\{(\w+)\}/g, ':$1'),
    })(HttpApiController.prototype, name, descriptor);
    Req()(HttpApiController.prototype, name, 0);
    Res()(HttpApiController.prototype, name, 1);
  }
  Controller(prefix)(HttpApiController);
  return HttpApiController;
}

async function answer(
  api: HttpApi,
  endpoint: Endpoint,
  request: NestRequest,
  response: NestResponse,
): Promise<void> {
  const incoming = request.raw ?? (request as unknown as IncomingMessage);
  const isRead = incoming.readableEnded || request.body !== undefined;
  if (isRead && request.rawBody === undefined && incoming.headers['content-length'] !== undefined)
    throw new InvariantViolationError(
      'The body was parsed before its route could read it: create the application with rawBody: true',
    );
  const params = request.params ?? {};
  const served = nodeRequest(incoming, {
    url: addressOf(endpoint, params) + queryOf(request.originalUrl ?? request.url),
    params,
    address: request.ip ?? incoming.socket.remoteAddress ?? 'unknown',
    response: 'raw' in response ? response.raw : response,
    bytes: request.rawBody,
  });
  await send(await api.answer(endpoint, served), response);
}

async function send(answered: Response, response: NestResponse): Promise<void> {
  if ('raw' in response) sendReply(answered, response);
  else await sendResponse(answered, response);
}

/** The path without the prefixes of the module and the application. */
function addressOf({ address }: Endpoint, params: Readonly<Record<string, string>>): string {
  return address.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(params[name] ?? ''));
}

function queryOf(url: string): string {
  const at = url.indexOf('?');
  return at === -1 ? '' : url.slice(at);
}

/** The problems of the exceptions that NestJS and its guards throw, by their statuses. */
const problemOfStatus: Readonly<Record<number, string>> = {
  400: 'bad-request',
  401: 'unauthorized',
  403: 'forbidden',
  404: 'not-found',
  405: 'method-not-allowed',
  408: 'request-timeout',
  412: 'precondition-failed',
  413: 'body-too-large',
  415: 'unsupported-media-type',
  429: 'too-many-requests',
};

/** Answers errors of guards, pipes and parsers with problem documents, too: `app.useGlobalFilters(new ProblemFilter(api))`. */
export class ProblemFilter implements ExceptionFilter {
  readonly #api: HttpApi;

  constructor(api: HttpApi) {
    this.#api = api;
  }

  /** Answers an error. */
  async catch(error: unknown, host: ArgumentsHost): Promise<void> {
    const status = statusOf(error);
    const name = problemOfStatus[status ?? 0];
    const problem =
      name === undefined || error instanceof ProblemError
        ? error
        : new ProblemError(name, error instanceof Error ? error.message : name, { cause: error });
    const response = host.switchToHttp().getResponse<NestResponse>();
    const { response: answered } = this.#api.refuse(problem);
    await send(answered, response);
  }
}

/** The status of an exception of NestJS, or of a parser of Express or Fastify. */
function statusOf(error: unknown): number | undefined {
  if (error instanceof HttpException) return error.getStatus();
  return error instanceof Error && 'statusCode' in error && typeof error.statusCode === 'number'
    ? error.statusCode
    : undefined;
}
