import { ConfigurationError, type FrameworkConfig, InvariantViolationError } from '@framework/core';
import { type HttpApi, ShardCapacity, errorReason, hasDocsPage, requestIdHeader } from '@framework/http';
import {
  AuditLog,
  type AuditSettings,
  ClientAddresses,
  type HttpLimits,
  type HttpSettings,
  RateLimits,
  ServerCertificate,
  type SharedRates,
  assertLoopbackOnly,
  openSharedRates,
} from '@framework/http/security';
import { Draining, HttpServer, type HttpServerOptions, type WebHandler } from '@framework/http/server';
import type { MeterProvider } from '@opentelemetry/api';
import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';

import { logMessages } from '../log/log-messages.js';
import { serviceApi, serviceApp } from '../service-api.js';
import type {
  Application,
  HttpDefinition,
  ServeOptions,
  ServedApi,
  Service,
  ServiceDefinition,
} from '../service-definition.js';
import { namesOf } from '../service-names.js';
import { parseSections } from '../settings/service-config.js';

/** Where a process answers requests. */
export interface ListenOptions {
  readonly config: FrameworkConfig;
  /** Without authentication, only the loopback address. */
  readonly host: string;
  readonly port: number;
  /** Whether the process is in operation, which needs authentication. Default false. */
  readonly isProduction?: boolean;
  /** The maximum number of client connections; further ones are closed at once. Default: that of `config.http`. */
  readonly connectionsMax?: number | undefined;
  readonly logger: Logger;
  /** Whether to serve `/docs`, a page for reading and trying the API, if `swagger-ui-dist` is installed. Default true. */
  readonly docs?: boolean;
}

type Served<A extends Application> = ServiceDefinition<A> & { readonly http: HttpDefinition<A> };

/** Serves an application over HTTP, with the limits, tokens, audit log and certificate of the configuration. */
export class HttpListener<A extends Application> {
  readonly #definition: Served<A>;
  readonly #options: ListenOptions;
  readonly #settings: HttpSettings;
  readonly #certificate: ServerCertificate | undefined;
  readonly #audit: AuditLog | undefined;
  #shared: SharedRates | undefined;

  private constructor(
    definition: Served<A>,
    options: ListenOptions,
    opened: {
      readonly settings: HttpSettings;
      readonly certificate: ServerCertificate | undefined;
      readonly audit: AuditLog | undefined;
    },
  ) {
    this.#definition = definition;
    this.#options = options;
    this.#settings = opened.settings;
    this.#certificate = opened.certificate;
    this.#audit = opened.audit;
  }

  /**
   * Opens what needs no database, so that a mistake ends the start before anything else happens.
   *
   * @throws ConfigurationError `invalid-configuration` when a setting has a mistake, or a file cannot be used
   */
  static async open<A extends Application>(
    definition: Served<A>,
    options: ListenOptions,
  ): Promise<HttpListener<A>> {
    const { config, host, isProduction = false, logger } = options;
    const { security, http: settings } = parseSections(definition, config);
    const remedy = `configure framework.security.jwt in the file of ${namesOf(definition).variables}_CONFIG`;
    if (security.jwt === undefined) assertLoopbackOnly({ host, isProduction, remedy });
    const certificate = settings.tls && (await ServerCertificate.read(settings.tls));
    const audit = security.audit && (await openAudit(security.audit, logger));
    return new HttpListener(definition, options, { settings, certificate, audit });
  }

  /**
   * Begins to listen, whether or not databases answer.
   *
   * @param meterProvider where requests are measured besides the SDK that is registered with OpenTelemetry's API
   * @throws the system's error when it cannot listen
   */
  async serve(service: Service<A>, meterProvider: MeterProvider | undefined): Promise<ServedPages> {
    const { host, port, connectionsMax, logger, docs = true } = this.#options;
    const hasDocs = docs && hasDocsPage();
    const settings = this.#settings;
    const limits = { ...settings.limits, connectionsMax: connectionsMax ?? settings.limits.connectionsMax };
    service.authentication?.preload();
    this.#shared = await openRates(limits, namesOf(this.#definition).service, logger);
    const clients = new ClientAddresses({
      trustedProxies: settings.trustedProxies,
      unlimited: limits.unlimitedAddresses,
    });
    const api = serviceApi(this.#definition, service, {
      logger,
      docs: hasDocs,
      encrypted: settings.tls !== undefined,
      rates: exceptUnlimited(new RateLimits(limits, this.#shared?.counter), clients),
      capacity: new ShardCapacity(limits.requestsPerShardMax),
      audit: this.#audit,
    });
    const address = { host, port, limits, tls: this.#certificate?.context };
    const { serve } = this.#definition.http;
    const { url, close } = serve
      ? await serveBy(serve, api, { ...address, settings })
      : await this.#listen(api, { ...address, clients }, meterProvider);
    return { url, close, docsUrl: hasDocs ? `${url}/docs` : undefined };
  }

  /** Closes what was opened beside the server, once no request is running any more. */
  async close(): Promise<void> {
    await Promise.all([this.#audit?.close(), this.#shared?.close()]);
    if (this.#audit !== undefined) this.#options.logger.info(this.#audit.end, logMessages.auditEnd);
  }

  async #listen(
    api: HttpApi,
    options: HttpServerOptions,
    meterProvider: MeterProvider | undefined,
  ): Promise<ServedApi> {
    const { logger } = this.#options;
    const app = serviceApp(api, { meterProvider, cors: this.#settings.cors });
    const server = await HttpServer.listen(
      { fetch: (request, exchange) => app.fetch(request, exchange), ...refusals(api, logger) },
      options,
    );
    const unfollow = this.#certificate?.follow((context) => server.renewCertificate(context), logger);
    return {
      url: server.url,
      close: async () => {
        unfollow?.();
        await server.close();
      },
    };
  }
}

/** Lets the application's own function serve an API, and checks what it returns. */
async function serveBy(
  serve: NonNullable<HttpDefinition['serve']>,
  api: HttpApi,
  options: ServeOptions,
): Promise<ServedApi> {
  // What plain JavaScript may return.
  const served = (await serve(api, options)) as Partial<ServedApi> | undefined;
  const { url, close, server } = served ?? {};
  if (url === undefined || close === undefined) {
    await Promise.allSettled([(async () => close?.())()]);
    throw new InvariantViolationError('http.serve must resolve to the url at which it listens, and to close');
  }
  const draining = server && new Draining(server);
  const closeAll = (): Promise<void> => (draining ? draining.close(close) : close());
  if (options.tls === undefined || url.startsWith('https:')) return { url, close: closeAll };
  await closeAll();
  const message = `is configured, but http.serve listens at ${url} without TLS: pass options.tls to its server`;
  throw new ConfigurationError([{ path: 'framework.http.tls', message }]);
}

/** Counts an IPv6 network as one client, and no client of `unlimited-addresses`, whichever framework serves the API. */
function exceptUnlimited(rates: RateLimits, clients: ClientAddresses): Pick<RateLimits, 'refusal'> {
  return {
    refusal: async (subject, client) => {
      if (subject !== 'address') return rates.refusal(subject, client);
      const { address, isLimited } = clients.atAddress(client);
      // The listener of the service passes the network of an IPv6 client, which is no address.
      return isLimited ? rates.refusal(subject, address === 'unknown' ? client : address) : undefined;
    },
  };
}

/** An API that is being served, and the page about it. */
interface ServedPages extends ServedApi {
  /** `undefined` when it is switched off, or `swagger-ui-dist` is not installed. */
  readonly docsUrl: string | undefined;
}

/** @throws ConfigurationError `invalid-configuration` when a file cannot be opened */
async function openAudit(settings: AuditSettings, logger: Logger): Promise<AuditLog> {
  const onFailure = (error: unknown): void =>
    logger.error({ reason: errorReason(error) }, logMessages.auditFailed);
  try {
    const audit = await AuditLog.open(settings, onFailure);
    logger.info(audit.end, logMessages.auditEnd);
    return audit;
  } catch (cause) {
    const message = `cannot be opened (${(cause as NodeJS.ErrnoException).code ?? errorReason(cause)})`;
    throw new ConfigurationError([{ path: 'framework.security.audit', message }], { cause });
  }
}

/** Connects to the store in which processes count requests together, if there is one. */
async function openRates({ sharedBy }: HttpLimits, applicationName: string, logger: Logger) {
  const onOutage = (error: unknown): void =>
    logger.warn({ reason: errorReason(error) }, logMessages.ratesAlone);
  return sharedBy && openSharedRates(sharedBy, { applicationName, onOutage });
}

/** The methods that `OPTIONS *` lists, and the answer to an unsupported method such as `CONNECT`. */
function methodsOf({ endpoints }: HttpApi): string {
  const methods = endpoints.map(({ method }) => method.toUpperCase());
  return [...new Set(['GET', 'HEAD', ...methods, 'OPTIONS'])].join(', ');
}

/** Answers input that never becomes a request of the app as the app would, and logs the id that the answer carries. */
function refusals(api: HttpApi, logger: Logger): Pick<WebHandler, 'refuse' | 'describe'> {
  const methods = methodsOf(api);
  return {
    refuse: (error) => {
      const { response, fields } = api.refuse(error);
      logger.info(fields, logMessages.requestRefused);
      if (response.status === 405) response.headers.set('allow', methods);
      return response;
    },
    describe: () => {
      const headers = { allow: methods, [requestIdHeader]: randomUUID() };
      return new Response(null, { status: 204, headers });
    },
  };
}
