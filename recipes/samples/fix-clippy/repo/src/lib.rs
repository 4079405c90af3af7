//! What is in stock.

/// One article.
pub struct Item {
    pub name: String,
    pub count: u32,
}

/// Whether there is nothing in stock.
pub fn is_sold_out(items: &[Item]) -> bool {
    return items.len() == 0;
}

/// All articles of which fewer than `limit` are left.
pub fn running_low(items: &[Item], limit: u32) -> Vec<&Item> {
    let mut low = Vec::new();
    for i in 0..items.len() {
        if items[i].count < limit {
            low.push(&items[i]);
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, count: u32) -> Item {
        Item {
            name: name.to_string(),
            count,
        }
    }

    #[test]
    fn nothing_is_sold_out() {
        assert!(is_sold_out(&[]));
        assert!(!is_sold_out(&[item("bolt", 1)]));
    }

    #[test]
    fn low_items_are_found_in_order() {
        let items = [item("bolt", 1), item("nut", 90), item("washer", 4)];
        let low: Vec<&str> = running_low(&items, 5).iter().map(|item| item.name.as_str()).collect();
        assert_eq!(low, ["bolt", "washer"]);
    }
}
