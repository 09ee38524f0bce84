import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify';

import type { ServedRequest } from './exchange.js';
import type { HttpApi } from './http-api.js';
import { errorReason } from './log/error-text.js';
import { addressWith, nodeRequest, queryOf, sendReply, statusOf } from './node-request.js';

/** How a plugin serves an API. */
export interface HttpPluginOptions {
  /** The maximum number of bytes in a body. Default 65,536. */
  readonly bodyBytesMax?: number;
  /**
   * Whether paths at which there is nothing are answered with problem documents. Set it to false if the application has a not-found
   * handler of its own at the same prefix. Default true.
   */
  readonly notFound?: boolean;
}

/**
 * A Fastify plugin that serves an {@link HttpApi}: `app.register(httpPlugin(api), { prefix: '/v1' })`.
 *
 * Hooks and other plugins apply to its routes. It reads bodies itself, so that numbers are exact, and only after the token was verified:
 * content type parsers of the application are not used for its routes.
 */
export function httpPlugin(api: HttpApi, options: HttpPluginOptions = {}): FastifyPluginAsync {
  const { bodyBytesMax, notFound = true } = options;
  return async (app) => {
    const served = (request: FastifyRequest, reply: FastifyReply, address?: string): ServedRequest =>
      nodeRequest(request.raw, {
        url: pathIn(app.prefix, address, request) + queryOf(request.url),
        params: (request.params ?? {}) as Readonly<Record<string, string>>,
        address: request.ip,
        response: reply.raw,
        bodyBytesMax,
      });
    let isClosing = false;
    app.addHook('preClose', async () => void (isClosing = true));
    // Fastify closes idle connections first, and would then wait for clients that keep theirs after the last answer.
    const send = (answer: Response, reply: FastifyReply): unknown =>
      sendReply(answer, isClosing ? reply.header('connection', 'close') : reply);
    app.removeAllContentTypeParsers();
    // Leaves the body to the route that needs it.
    app.addContentTypeParser('*', (_request, _payload, done) => done(null));
    for (const endpoint of api.endpoints) {
      app.route({
        method: endpoint.method.toUpperCase(),
        url: endpoint.address.replaceAll(/\{(\w+)\}/g, ':$1'),
        handler: async (request, reply) =>
          send(await api.answer(endpoint, served(request, reply, endpoint.address)), reply),
      });
    }
    if (notFound)
      app.setNotFoundHandler(async (request, reply) =>
        send(await api.answerUnmatched(served(request, reply)), reply),
      );
    // What hooks throw, and requests that Fastify itself refuses.
    app.setErrorHandler((error, request, reply) => {
      const { response, fields } = api.refuse(error, statusOf(error));
      if (response.status >= 500)
        request.log.error({ ...fields, reason: errorReason(error) }, 'internal error');
      return send(response, reply);
    });
  };
}

/** Returns the path below the prefix of the plugin. For an endpoint, it consists of the address and the parameters. */
function pathIn(prefix: string, address: string | undefined, { url, params }: FastifyRequest): string {
  if (address !== undefined) return addressWith(address, params as Readonly<Record<string, string>>);
  const path = url.split('?', 1)[0] ?? '';
  return path.startsWith(prefix) ? path.slice(prefix.length) : path;
}
