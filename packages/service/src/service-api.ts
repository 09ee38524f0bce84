import {
  HttpApi,
  RequestLog,
  type HttpLog,
  type ShardCapacity,
  healthRoutes,
  jsonDocument,
  relayHealthRoute,
} from '@framework/http';
import { type HonoEnv, honoApp } from '@framework/http/hono';
import type { AuditLog, CorsSettings, RateLimits } from '@framework/http/security';
import { asyncApiDocument } from '@framework/relay/asyncapi';
import { httpInstrumentationMiddleware } from '@hono/otel';
import { type MeterProvider, ProxyTracerProvider, createNoopMeter, metrics, trace } from '@opentelemetry/api';
import { Hono, type MiddlewareHandler } from 'hono';

import type { Application, HttpDefinition, Service, ServiceDefinition } from './service-definition.js';
import { namesOf } from './service-names.js';

/** What the API of a service needs besides the application. */
export interface ServiceApiOptions {
  /** Default: nothing is logged. */
  readonly logger?: HttpLog;
  /** Whether to serve `/docs`, a page for reading and trying the API. Default true. */
  readonly docs?: boolean;
  /** Whether it is served over TLS. Default false. */
  readonly encrypted?: boolean;
  /** Whether relays are configured. Default: whether the service has any. */
  readonly hasRelays?: boolean;
  /** Limits how many requests an address and a principal may send. Default: nothing does. */
  readonly rates?: Pick<RateLimits, 'refusal'>;
  /** How many requests a shard has at the same time. Default 512. */
  readonly capacity?: ShardCapacity;
  /** Records writes. Default: nothing does. */
  readonly audit?: AuditLog | undefined;
}

/** Describes an application as an API: its routes and problems, its health and its documents. */
export function serviceApi<A extends Application>(
  definition: Pick<ServiceDefinition<A>, 'name' | 'events'> & { readonly http: HttpDefinition<A> },
  service: Service<A>,
  options: ServiceApiOptions = {},
): HttpApi {
  const { logger, docs = true, hasRelays = service.relays.length > 0, ...others } = options;
  const { events, http } = definition;
  const { info, problems = {}, routes } = http;
  const { namespace } = service;
  return new HttpApi({
    databases: service.databases,
    executor: service.executor,
    authentication: service.authentication,
    ...others,
    name: namesOf(definition).service,
    info,
    docs,
    problems,
    routes: [
      ...(typeof routes === 'function' ? routes(service) : routes),
      ...healthRoutes(service),
      ...(hasRelays ? [relayHealthRoute(service)] : []),
    ],
    // Everybody may read it, so that it names no broker.
    documents: events
      ? [jsonDocument('/asyncapi.json', () => asyncApiDocument({ ...events, namespace }))]
      : [],
    ...(logger && { log: new RequestLog(logger) }),
  });
}

/** Serves it with Hono. */
export function serviceApp(
  api: HttpApi,
  options: {
    /** Where requests are measured besides the SDK that was registered with OpenTelemetry's API before. Default: nowhere. */
    readonly meterProvider?: MeterProvider | undefined;
    /** The pages of other origins whose scripts may send requests. Default: none. */
    readonly cors?: CorsSettings | undefined;
  } = {},
): Hono<HonoEnv> {
  const { meterProvider, cors } = options;
  const app = new Hono<HonoEnv>();
  if (hasSdk()) app.use(unlessFailed(httpInstrumentationMiddleware()));
  if (meterProvider !== undefined)
    app.use(unlessFailed(httpInstrumentationMiddleware({ disableTracing: true, meterProvider })));
  return honoApp(api, { app, cors });
}

/** Whether an SDK is registered with OpenTelemetry's API. Without one, spans and figures go nowhere, and cost a tenth of a request. */
function hasSdk(): boolean {
  const tracing = trace.getTracerProvider();
  const isTraced =
    !(tracing instanceof ProxyTracerProvider) || tracing.getDelegateTracer('service') !== undefined;
  return isTraced || metrics.getMeter('service') !== createNoopMeter();
}

/**
 * Traces and measures requests. An error of the SDK must not change an answer: a deposit that is committed would look as if it had
 * failed.
 */
function unlessFailed(observed: MiddlewareHandler): MiddlewareHandler<HonoEnv> {
  return async (context, next) => {
    let answered: Promise<void> | undefined;
    const answer = (): Promise<void> => (answered ??= next());
    try {
      await observed(context, answer);
    } catch {
      // It may have failed before it has called for the answer, or after.
    }
    await answer();
  };
}
