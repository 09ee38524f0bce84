import type { RequestFaultCode } from '../problem/problem-kinds.js';

/** One fault in the shape of a request. */
export interface ShapeFault {
  /** Where: `#/amount` in the body (a JSON pointer), `path/id`, `query/limit` or `header/Idempotency-Key` elsewhere. */
  readonly pointer: string;
  readonly message: string;
}

/** A request that is refused for its form; no action has run. */
export class RequestFault extends Error {
  readonly code: RequestFaultCode;
  /** What is wrong where; empty when the request as a whole is. */
  readonly faults: readonly ShapeFault[];

  constructor(
    code: RequestFaultCode,
    message: string,
    options: { readonly faults?: readonly ShapeFault[]; readonly cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.name = 'RequestFault';
    this.code = code;
    this.faults = options.faults ?? [];
  }
}
