export { ServerCertificate, certificateLogMessages } from './server-certificate.js';
export { type Client, ClientAddresses, ConnectionCounts } from './client-address.js';

export {
  type RateCounter,
  type RateCounterFactory,
  type RateLimit,
  type RateLimitSettings,
  RateLimits,
  type RateSubject,
  TooManyRequestsError,
} from './rate-limits.js';
export {
  type RateStoreSettings,
  type SharedRates,
  type SharedRatesOptions,
  openSharedRates,
} from './shared-rates.js';

export { type AuditEntry, AuditLog, AuditUnavailableError } from './audit-log.js';
export { type ChainCheck, type ChainEnd, checkChain } from './hash-chain.js';

export { Authentication, type AuthenticationOptions, UnauthorizedError } from './authentication.js';
export { type KeySource, KeysUnavailableError } from './key-set.js';

export {
  type CorsSettings,
  type HttpLimits,
  type HttpSettings,
  type TlsSettings,
  corsSchema,
  httpSchema,
  limitsSchema,
  tlsSchema,
} from './http-settings.js';
export {
  type AuditSettings,
  type JwtSettings,
  assertLoopbackOnly,
  auditSchema,
  jwtSchema,
  securitySchema,
} from './security-settings.js';
