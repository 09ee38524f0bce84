import type { AuditLog } from '../security/audit-log.js';
import { problemOf } from './problem-of.js';
import { replayedHeader } from './document-operation.js';
import { idempotencyKeyHeader } from './request-fields.js';
import type { WalletApp } from './wallet-app-env.js';

/**
 * Records each request that would write, whatever becomes of it: also those that are refused because nobody knows their sender. Call
 * it before callers are identified.
 */
export function auditWrites(app: WalletApp, audit: AuditLog): void {
  for (const path of ['/wallets/*', '/transfers/*']) {
    app.use(path, async (context, next) => {
      const { req: request, env } = context;
      if (request.method !== 'POST') return next();
      return audit.record(async () => {
        await next();
        const { error, res: answer } = context;
        const { requestId, principal, input, unansweredCode } = context.var as Pick<
          typeof context.var,
          'requestId'
        > &
          Partial<typeof context.var>;
        return {
          time: new Date(),
          requestId,
          principal: principal?.name ?? null,
          address: env.client.address,
          request: `POST ${request.path}`,
          idempotencyKey: request.header(idempotencyKeyHeader) ?? null,
          input: input ?? null,
          status: answer.status,
          code: error === undefined ? (unansweredCode ?? null) : problemOf(error).code,
          replayed: answer.headers.has(replayedHeader),
        };
      });
    });
  }
}
