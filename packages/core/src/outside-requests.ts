import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * Runs work outside of any request's async context. Work that serves many requests must not run in the context of the
 * request that happened to start it.
 *
 * It uses the context in which this module was loaded, so load it before the first request is served.
 */
export const outsideRequests: <Result>(work: () => Result) => Result = AsyncLocalStorage.snapshot();
