import {
  type ArgumentsHost,
  Controller,
  type DynamicModule,
  type ExceptionFilter,
  Logger,
  Req,
  RequestMapping,
  RequestMethod,
  Res,
} from '@nestjs/common';
import { InvariantViolationError } from '@framework/core';
import type { IncomingMessage, ServerResponse } from 'node:http';

import type { Endpoint } from './exchange.js';
import type { HttpApi } from './http-api.js';
import { errorReason } from './log/error-text.js';
import {
  type AnswerReply,
  addressWith,
  nodeRequest,
  queryOf,
  sendReply,
  sendResponse,
  statusOf,
} from './node-request.js';

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
  /** The maximum number of bytes in a body. Default 65,536. */
  readonly bodyBytesMax?: number;
}

/**
 * A NestJS module that serves an {@link HttpApi}: `imports: [HttpApiModule.forRoot(api)]`.
 *
 * Each endpoint is a method of a controller, so that guards, interceptors and middleware of the application apply. Create the application
 * with `{ bodyParser: false }`, or with `{ rawBody: true }` if other routes need the parser, which then reads first, up to its own limit of
 * 100 KB: numbers are exact only in the bytes of a body.
 */
// oxlint-disable-next-line typescript/no-extraneous-class -- a module of NestJS is a class
export class HttpApiModule {
  /** The module of an API. */
  static forRoot(api: HttpApi, options: HttpApiModuleOptions = {}): DynamicModule {
    return { module: HttpApiModule, controllers: [controllerOf(api, options)] };
  }
}

function controllerOf(api: HttpApi, { prefix = '', bodyBytesMax }: HttpApiModuleOptions): new () => object {
  let isClosing = false;
  class HttpApiController {
    /** The application is about to close its server, which then waits for clients that keep their connections. */
    onModuleDestroy(): void {
      isClosing = true;
    }
  }
  for (const [index, endpoint] of api.endpoints.entries()) {
    const name = `${endpoint.method}${index}`;
    const value = (request: NestRequest, response: NestResponse): Promise<void> =>
      answer(api, endpoint, { request, response, bodyBytesMax, isClosing: () => isClosing });
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
  {
    request,
    response,
    bodyBytesMax,
    isClosing,
  }: {
    readonly request: NestRequest;
    readonly response: NestResponse;
    readonly bodyBytesMax: number | undefined;
    readonly isClosing: () => boolean;
  },
): Promise<void> {
  const incoming = request.raw ?? (request as unknown as IncomingMessage);
  const isRead = incoming.readableEnded || request.body !== undefined;
  if (isRead && request.rawBody === undefined && incoming.headers['content-length'] !== undefined)
    throw new InvariantViolationError(
      'The body was parsed before its route could read it: create the application with rawBody: true',
    );
  const params = request.params ?? {};
  const served = nodeRequest(incoming, {
    url: addressWith(endpoint.address, params) + queryOf(request.originalUrl ?? request.url),
    params,
    address: request.ip ?? incoming.socket.remoteAddress ?? 'unknown',
    response: 'raw' in response ? response.raw : response,
    bytes: request.rawBody,
    bodyBytesMax,
  });
  const answered = await api.answer(endpoint, served);
  if (isClosing()) ('raw' in response ? response.raw : response).setHeader('connection', 'close');
  await send(answered, response);
}

async function send(answered: Response, response: NestResponse): Promise<void> {
  if ('raw' in response) sendReply(answered, response);
  else await sendResponse(answered, response);
}

/** Answers errors of guards, pipes and parsers with problem documents, too: `app.useGlobalFilters(new ProblemFilter(api))`. */
export class ProblemFilter implements ExceptionFilter {
  readonly #api: HttpApi;

  constructor(api: HttpApi) {
    this.#api = api;
  }

  /** Answers an error, unless an answer has begun: then it ends the connection, so that the client does not take a part for the whole. */
  async catch(error: unknown, host: ArgumentsHost): Promise<void> {
    const response = host.switchToHttp().getResponse<NestResponse>();
    const { response: answered, fields } = this.#api.refuse(error, statusOf(error));
    if (answered.status >= 500)
      new Logger(ProblemFilter.name).error({ ...fields, reason: errorReason(error) });
    const raw = 'raw' in response ? response.raw : response;
    if (raw.headersSent) raw.destroy();
    else await send(answered, response);
  }
}
