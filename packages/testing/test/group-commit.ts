import { inject } from 'vitest';

declare module 'vitest' {
  interface ProvidedContext {
    readonly groupCommit: boolean;
  }
}

/** Whether these tests run with group commit: `vitest.config.ts` says which do so, too. */
export const groupCommit: boolean = inject('groupCommit');
