export { type HttpApiOptions, HttpApi } from './http-api.js';
export type { AuditEntry } from './security/audit-log.js';
export {
  type Call,
  type Reply,
  type Route,
  type RouteDefinition,
  type RouteInput,
  type RouteMethod,
  route,
} from './route/route.js';
export { decimalField, limitField, cursorNote, pageOf, textField, uuidField } from './route/fields.js';
export { existingId, shardsIn } from './route/existing-id.js';
export {
  type ProblemKind,
  type ProblemKinds,
  frameworkProblems,
  type FrameworkProblem,
} from './problem/framework-problems.js';
export { type ProblemDetails, ProblemError, type RequestFault } from './problem/problem-error.js';
export { InvalidRequestError, type RequestFaultCode } from './request/invalid-request-error.js';
export { type BodyReader, RequestBody, webBody } from './request/request-body.js';
export { idempotencyKeyHeader, replayedHeader } from './request/idempotency-key.js';
export {
  type Endpoint,
  Exchange,
  type AnswerHeaders,
  type LogSubject,
  type ServedClient,
  type ServedRequest,
  requestIdHeader,
} from './exchange.js';
export { ShardBusyError, ShardCapacity } from './shard-capacity.js';
export { type DeliveryHealth, healthRoutes } from './health/health-routes.js';
export { type ServedRelay, type ServedRelayState, relayHealthRoute } from './health/relay-health-route.js';
export { type ServedDocument, jsonDocument } from './openapi/served-document.js';
export { type ApiInfo } from './openapi/openapi-document.js';
export { hasDocsPage } from './openapi/docs-page.js';
export { parseSection } from './parse-section.js';
export type { HttpLog } from './http-log.js';
export { RequestLog, requestLogMessages } from './log/request-log.js';
export { attemptReason, censor, errorReason, errorStack, redacted, redactedWith } from './log/error-text.js';
export { type FailureTotal, RepeatedFailures } from './log/repeated-failures.js';
