export { type ProblemDetails, ProblemError, type RequestFault } from './problem/problem-error.js';
export type { HttpLog } from './http-log.js';
