import { defineConfig } from 'drizzle-kit';

export default defineConfig({
  dialect: 'postgresql',
  schema: [
    './src/wallet/wallet-repository.ts',
    './src/transfer/transfers-table.ts',
    './src/transfer/transfer-decisions-table.ts',
    './src/notification/notifications-table.ts',
  ],
  out: './migrations',
});
