import type { ActionExecutor, DatabaseRegistry, Repository } from '@framework/core';

import {
  HttpApi,
  type HttpApiOptions,
  type HttpLog,
  RequestLog,
  errorReason,
  frameworkProblems,
  healthRoutes,
} from '../../src/index.js';
import {
  AuditLog,
  Authentication,
  type KeySource,
  RateLimits,
  auditSchema,
  jwtSchema,
} from '../../src/security/index.js';
import { orderRoutes } from './order-routes.js';
import type { Order } from './order.js';

/** The composition of the application: what it is without HTTP. */
export interface Shop {
  readonly databases: DatabaseRegistry;
  readonly executor: ActionExecutor;
  readonly orders: Repository<Order>;
}

/** The statuses of the application's own error codes. */
const problems = {
  'invalid-total': { status: 422, title: 'The total is not acceptable' },
  'order-cancelled': { status: 409, title: 'The order is cancelled' },
  'order-not-found': { status: 404, title: 'The order does not exist' },
  'precondition-failed': frameworkProblems['precondition-failed'],
};

/** The shop over HTTP. */
export function shopApi(
  { databases, executor, orders }: Shop,
  options: Partial<HttpApiOptions> = {},
): HttpApi {
  return new HttpApi({
    name: 'shop',
    info: { title: 'Shop', version: '1.0.0' },
    problems,
    routes: [...orderRoutes(orders, databases), ...healthRoutes({ databases })],
    executor,
    databases,
    docs: true,
    ...options,
  });
}

/** What protects the shop from its clients. */
export async function shopSecurity(
  logger: HttpLog,
  settings: { readonly auditFile: string; readonly keys?: KeySource },
) {
  const { auditFile, ...others } = settings;
  const jwt = jwtSchema.parse({
    issuer: 'https://id.example.com',
    audience: 'shop',
    jwksUri: 'https://id.example.com/jwks.json',
  });
  const authentication = new Authentication(jwt, { realm: 'shop', ...others });
  const rates = new RateLimits({
    perAddress: { requests: 100, seconds: 1 },
    perPrincipal: { requests: 50, seconds: 1 },
  });
  const audit = await AuditLog.open(auditSchema.parse({ file: auditFile, hashChain: true }), (error) =>
    logger.error({ reason: errorReason(error) }, 'the audit log cannot be written'),
  );
  return { authentication, rates, audit, log: new RequestLog(logger) };
}
