//! Sources, pages, tiers and budgets of lookupfs.
