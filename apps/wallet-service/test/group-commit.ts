import { inject } from 'vitest';

declare module 'vitest' {
  interface ProvidedContext {
    readonly groupCommit: boolean;
  }
}

/** Whether these tests run with group commit: `vitest.config.ts` lists those that also do. */
export const groupCommit: boolean = inject('groupCommit');
